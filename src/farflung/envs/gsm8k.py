r"""gsm8k-100: a hundred word problems of GSM8K's test split, for evaluation.

The prompt is the problem and how to mark the answer; the grader is `math-exact@1` unless told otherwise: all answers
are whole numbers, which its exact rules decide. The demonstration is the published solution without its calculator
marks. A task's level is the number of calculations in that solution, "2 steps".
"""

import re
from collections.abc import Mapping
from typing import Any

from farflung.envs.bundled import BundledConfig, BundledSet, Exercise, GraderLabel

FILE = "gsm8k-100.jsonl"
INSTRUCTION = r"Think step by step, then write the final number as \boxed{number}."
MAX_STEPS = 6
"""Level of everything from here on."""

_CALCULATION = re.compile(r"<<[^<>]*>>")


class Gsm8kConfig(BundledConfig):
    grader: GraderLabel = "math-exact@1"
    """NAME@VERSION; its reference is a number."""


class Gsm8k(BundledSet):
    name = "gsm8k-100"
    file = FILE
    config_type = Gsm8kConfig

    @staticmethod
    def read(item: Mapping[str, Any]) -> Exercise:
        text, _, answer = str(item["solution"]).partition("####")
        number = answer.strip().replace(",", "")
        return Exercise(
            prompt=f"{item['question']}\n\n{INSTRUCTION}",
            answer=number,
            demonstration=f"{_CALCULATION.sub('', text).strip()}\n\\boxed{{{number}}}",
            level=_level(len(_CALCULATION.findall(item["solution"]))),
        )


def _level(num_steps: int) -> str:
    return f"{MAX_STEPS} steps or more" if num_steps >= MAX_STEPS else f"{num_steps} step{'s' * (num_steps != 1)}"
