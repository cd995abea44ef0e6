"""Sampling engines behind one interface."""
