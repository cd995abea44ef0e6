"""Typed routes and client between roles."""
