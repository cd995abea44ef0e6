"""Held-out accuracy of a policy."""
