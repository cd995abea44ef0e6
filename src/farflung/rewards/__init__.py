"""Extraction and exact rules of grading; pure, no processes, no models.

    extract.py  where in a completion the final answer stands
    exact.py    is it equal to the reference: texts, integers of any size

A grade is 1.0, 0.0 or None; None means that the *reference* cannot be graded against, nobody's mistake but ours. This
package never runs, evaluates or converts to a float anything that a model wrote.
"""
