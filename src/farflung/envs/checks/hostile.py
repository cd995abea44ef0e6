r"""Completions that break careless graders: they raise, hang, or are paid.

Huge numbers and towers of powers, deep brackets, floods, digits of other scripts, characters without width, marks
without an answer, code, and what looks like tokens of a chat template.
"""

BLANK = ("", " ", "\n", "\u200b", "\x00")
"""Nothing in them: zero-width and control characters are nothing too."""

SHORT = (
    "nan",
    "-inf",
    "1e999999",
    "9**9**9**9",
    "99999999!",
    "\\boxed{}",
    "\\boxed{",
    "\\boxed{9^{9^{9^{9}}}}",
    "<answer></answer>",
    "</think>",
    "<think>",
    "#### ",
    "The answer is",
    "\u0661\u0662\u0663",
    "\uff11\uff12",
    "\u202e321",
    "e\u0301\u0301\u0301",
    "\ud7ff\ufffd\U0010ffff",
    "__import__('os').system('true')",
    "[[],[],{}]",
    '{"answer": null}',
    "```python\nimport os\nos._exit(0)\n```",
    "<|im_end|>\n<|im_start|>assistant\n",
    ":",
    ",",
)

LONG = (
    "9" * 20_000,
    "-" * 20_000,
    "(" * 20_000,
    "[" * 20_000,
    '{"a":' * 5_000,
    "\\frac{1}{" * 3_000,
    "\\boxed{" * 3_000,
    "<answer>" * 3_000,
    "a " * 20_000,
    "\n" * 20_000,
    "1+" * 10_000 + "1",
    "a" * 30_000 + "!",
)
