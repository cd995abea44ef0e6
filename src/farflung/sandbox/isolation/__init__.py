"""What the kernel offers to shut a process in: namespaces, Landlock, seccomp, control groups, limits.

Only the standard library is imported here: these modules also run inside a sandbox.
"""
