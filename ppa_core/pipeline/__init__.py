"""The API for writing pipelines: definition, partitioning, operators, sources, sinks."""
