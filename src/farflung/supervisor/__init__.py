"""Starts, watches and stops the roles of one machine.

    config.py      how many of each role, how patient
    policy.py      pure: exits and times in, restarts and the run's end out
    process.py     one role as an operating-system process
    leash.py       a pipe that ends a role when its supervisor is gone
    last_words.py  why a process ended, from its log
    service.py     the loop that carries out what the policy says

This package does not know what the roles do.
"""
