"""Metrics, counters and logs of a role."""
