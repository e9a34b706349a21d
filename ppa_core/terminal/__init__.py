"""Shared by all command lines: arguments, printing, logs."""
