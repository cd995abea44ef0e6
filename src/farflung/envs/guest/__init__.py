"""Environments from others, in a child without network, files or secrets.

    protocol.py     what is asked and answered
    inside.py       the child's side: imports the package and answers
    process.py      the child from outside: started, asked, ended
    environment.py  `Environment` whose every call is a question to the child

Import-time code runs in the child alone. A child that hangs, dies, floods or answers nonsense is an `OurFault` of the
call that was under way: nothing is accepted, nobody is slashed.
"""
