"""The role that checks."""
