"""What keeps secrets, names and folders safe; imports nothing else of this project."""
