"""`farflung plot RUN...`: one run or several as pictures.

runs.py      folders -> Run: rows by version, account of usage, intervals of activity
axis.py      what stands on the x axis: versions, time, rollouts, tokens
families.py  what has one colour: a run, or the seeds of one experiment
lines.py     figures over the axis, of seeds as mean and band
bars.py      staleness, time of a step, groups without a gradient
waits.py     who waits: over time, in all, and as a timeline
panels.py    the pictures by name
page.py      all of them on one page, or a file for each
command.py   the command
"""
