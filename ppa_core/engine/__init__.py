"""The fault-tolerance state machine: events in, instructions out. No I/O, no clock."""
