"""Durable event log."""
