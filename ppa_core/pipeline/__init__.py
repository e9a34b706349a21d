"""What people write pipelines with: definition, partitioning, operators, sources, sinks."""
