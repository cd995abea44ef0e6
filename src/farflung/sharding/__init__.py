"""Cutting policies into chunks and putting them together again; pure."""
