"""The role that samples."""
