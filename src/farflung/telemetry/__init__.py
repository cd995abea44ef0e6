"""What a role says of itself: metrics, who waits for whom, drops by reason, logs, signs of life.

This package does not know what the figures mean, and nothing in it ever stops a run.
"""
