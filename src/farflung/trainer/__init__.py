"""The role that learns."""
