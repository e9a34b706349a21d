"""Runs with real kills, and their reports."""
