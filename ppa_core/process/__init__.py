"""Child processes: the supervisor of all of them, the driver's process, a Spark cluster and a test bed of hosts."""
