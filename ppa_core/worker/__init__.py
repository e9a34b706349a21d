"""The code that runs inside a Spark task."""
