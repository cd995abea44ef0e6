"""Where things lie inside a sandbox."""

DEVICES = ("null", "zero", "full", "random", "urandom")
SOURCE = "/farflung-source"
"""The supervisor's own code."""
WORK = "/tmp"  # noqa: S108 - the sandbox's own
"""The only folder that can be written to."""
