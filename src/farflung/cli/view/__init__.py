"""What a person sees while a run goes on.

state.py   pure: metrics rows and pool status in, figures to show out
plot.py    pure: a curve as lines of text
screen.py  pure: those figures as one screen
plain.py   pure: those figures as one line
live.py    the thread that asks, reads and draws
"""
