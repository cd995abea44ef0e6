"""`farflung plot RUN...`: one run or several as pictures.

runs.py      folders -> Run: rows by version, what the account of usage says
axis.py      what stands on the x axis: versions, minutes, rollouts, tokens
lines.py     one figure over the axis, of runs or of seeds of a run as mean and band
panels.py    the other kinds: histogram, stacked bars, timeline of waits
overview.py  all of it on one page
"""
