"""A node's store, the servers that can be started for one, and whether it lives."""
