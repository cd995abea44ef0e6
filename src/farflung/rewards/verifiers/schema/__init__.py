"""JSON Schema, draft 2020-12, as far as a model's answer needs it: bounded in time for any schema and any document.

    patterns   regular expressions without backtracking, whose cost is known
    nodes      a schema as a graph of checks, and the budget of one document
    keywords   each keyword as a check
    reading    from JSON to that graph; refuses what cannot be used, whatever the document

Not known here: completions, verdicts. Nothing is fetched and nothing is run.
"""
