"""Nodes, hosts and racks as a model, and where primaries, replicas and checkpoints live."""
