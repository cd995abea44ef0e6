"""Verdicts as a pure function of bytes, evidence and rules."""
