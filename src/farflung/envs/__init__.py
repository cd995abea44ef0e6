"""Task sets, prompts and graders.

    base.py                 the interface of an environment
    registry.py             environments by name
    sort_digits.py, mod_sum.py, long_addition.py, arithmetic.py, reverse_text.py
                            the built-in ones
    reasoning_gym.py        any data set of that library; reasoning_gym_sets.py says which are safe
    problems.py             a finite set of problems, dealt to two splits; draws that depend on their fields alone
    tasks.py, arguments.py  what every environment needs: records of tasks, checked arguments

This package does not know models, leases or files.
"""
