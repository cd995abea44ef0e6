"""A user's own harness, anything that speaks to OpenAI's API, against a model of ours.

    protocol   what a harness is told of a task, and what it says of its attempt
    command    a harness that is a program
    runs       attempts at tasks, several at a time, over one recording server

For evaluation and for trusted runs on one machine: what a harness does between two requests is its own, so that nobody
else could replay an attempt and a validator has nothing to check it by.
"""
