"""Benchmarks. `python -m benchmarks` runs all of them; see `--help` to run a part."""
