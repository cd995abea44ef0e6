"""The escape corpus: what programs have tried against sandboxes and graders, each with what must come of it.

`farflung sandbox doctor` runs it on a machine; the tests run it in every backend. The threats are named E3 (tests or
secrets leak), E4 (the verdict is forged) and E5 (the sandbox is left, or takes the machine down).
"""
