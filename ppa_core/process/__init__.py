"""Child processes: the supervisor of all of them, the driver's process, a trial Spark cluster."""
