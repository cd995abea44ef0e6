"""humaneval: the 164 Python functions of HumanEval, for evaluation. Programs run in a sandbox (`code@1`).

The prompt is the function's head with its docstring and asks for the whole function in a fenced block. The tests are
the published `check(candidate)`, behind the prompt, since some of them call helpers that stand there. The demonstration
is the published solution.
"""

import json
from collections.abc import Mapping
from typing import Any

from farflung.envs.bundled import BundledConfig, BundledSet, Exercise, GraderLabel

FILE = "humaneval.jsonl.gz"
INSTRUCTION = (
    "Complete this Python function. Reply with the whole program, imports and helpers included, in one fenced block."
)


class HumanEvalConfig(BundledConfig):
    grader: GraderLabel = "code@1"
    """NAME@VERSION; its reference is the tests of `sandbox.code.tests`."""


class HumanEval(BundledSet):
    name = "humaneval"
    file = FILE
    config_type = HumanEvalConfig

    @staticmethod
    def read(item: Mapping[str, Any]) -> Exercise:
        tests = {"kind": "pytest", "source": f"{item['prompt']}\n{item['test']}", "entry": item["entry_point"]}
        return Exercise(
            prompt=f"{INSTRUCTION}\n\n```python\n{item['prompt'].rstrip()}\n```",
            answer=json.dumps(tests),
            demonstration=f"```python\n{item['prompt']}{item['canonical_solution'].rstrip()}\n```",
        )
