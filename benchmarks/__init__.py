"""Benchmarks: `python -m benchmarks` runs all of them and prints what it measured."""
