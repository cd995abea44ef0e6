"""What runs inside a sandbox. Standard library only; nothing here ever sees an expected result of a function.

`supervisor` is the first process and holds the channel to the outside; `program` is its only child, forked before the
task arrives, and runs what the model wrote.
"""
