"""Drills: runs in which real processes are killed, and their reports."""
