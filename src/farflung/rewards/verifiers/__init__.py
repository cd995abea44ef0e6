"""Verifiers of tasks that are neither mathematics nor programs: pure rules, linear in the length of what they read.

    code_output.py    what a program prints, foretold
    instructions/     constraints on form and words, the kinds of IFEval
    json_schema.py    a JSON document that keeps to a schema
    schema/           JSON Schema itself, bounded in time
    json_value.py     a JSON document that equals another
    unscramble.py     sentences in their right order
    ascii_tree.py     a tree drawn in characters
    git_diff.py       a unified diff that makes one text of another
    null.py           nothing to check: a reasoned abstention

Each has `grade_*(reference, completion, ...) -> Decision`: None where the *reference* cannot be graded against, 0.0 for
an empty completion, 1.0 for the reference's own solution, and no text makes it raise. What is read of a completion is
what follows its thinking part. This package runs nothing that a model wrote.
"""
