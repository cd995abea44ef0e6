"""Records that cross a process: frozen values with canonical bytes, digests and limits.

This package does not do I/O, read clocks or know who sends what to whom.
"""
