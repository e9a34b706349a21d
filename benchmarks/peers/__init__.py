"""The same sliding-window work and the same failures in PPA, Flink and plain Spark Structured Streaming, side by side."""
