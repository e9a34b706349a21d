"""Nodes, hosts and racks, and the placement of tasks, replicas and checkpoints on them."""
