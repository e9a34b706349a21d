"""Masking of secrets, checks of names, safe handling of files and folders; imports nothing else of this project."""
