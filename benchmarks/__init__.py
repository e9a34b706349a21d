"""What we measure, and how. `python -m benchmarks` runs it all; `--help` says how to run a part."""
