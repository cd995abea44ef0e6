"""What `farflung env test` looks at: does an environment keep what `envs.base.Environment` promises?

report.py       a check: passed, failed with what was seen, or left out
episodes.py     tasks to look at, and what is said in them
hostile.py      completions that break careless graders
fingerprint.py  an environment in a few hashes, also from another process
tasks.py        checks of tasks: splits, indices, alphabet, template, determinism
grades.py       checks of grading: golds, blank and hostile completions, speed
declared.py     checks of what the package says of itself
run.py          all of them in order
"""
