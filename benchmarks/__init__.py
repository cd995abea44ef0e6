"""Figures of this package beside those of its peers, measured in one run on one machine: `python -m benchmarks`."""
