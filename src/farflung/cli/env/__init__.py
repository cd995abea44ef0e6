"""`farflung env`: write, look at, try, test, publish and install environments.

arguments.py    the words of the command line
command.py      which word does what
target.py       a name or a project folder as an environment that can be looked at
new.py          a project to start from, filled in from `template/`
listing.py      list
show.py         show
attempt.py      try
check.py        test
exchange.py     publish, install, remove
"""
