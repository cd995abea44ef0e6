"""A second opinion on mathematical equality, from a computer algebra system in limited child processes.

    config.py    limits
    pool.py      children, retries, blame: the interface (`MathPool.ask`)
    process.py   one child as seen from outside
    protocol.py  the words of both sides
    child.py     what runs inside
    opinion.py   inside: math-verify, and what its "yes" must pass
    confirm.py   inside: is a "yes" true to many digits, member by member
    decimals.py  inside: decimals as exact fractions

Only the modules marked "inside" import math-verify and sympy. Nothing here prints, logs or converts to text what was
parsed: writing out a tower of powers never ends.
"""
