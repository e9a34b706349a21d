"""Fuzzing: whatever comes from outside is mutated, and what must hold is checked. `make fuzz MINUTES=5` runs it.

Each module has one kind of input. A round is made of a number: the same seed and number give the same round.
"""
