"""The fault-tolerance brain: events in, instructions out. No I/O, no clock."""
