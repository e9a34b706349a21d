"""The driver: Spark's session, batches, replays, and what operators ask for."""
