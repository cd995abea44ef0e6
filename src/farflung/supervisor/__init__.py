"""Starts, watches and stops the roles of one machine."""
