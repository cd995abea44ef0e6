"""Passing weights on: a relay fetches every version from those above it and serves it to whoever is below."""
