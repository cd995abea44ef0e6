"""A judge's time and calls: all questions of one grading share a deadline, and a process asks only so many in all."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import Field

from farflung.config.base import Config
from farflung.envs.graders.judge_client import Endpoint, JudgeModel, NoBallot, Trouble
from farflung.envs.graders.judge_prompt import LABELS, JudgeMessage, Labels, draw_labels
from farflung.errors import UserError


class JudgeConfig(Config):
    """Arguments that judges share."""

    model: str = Field("judge", min_length=1, max_length=200)
    """Name of the model that the endpoint is asked for."""
    deadline_s: float = Field(8.0, gt=0, le=3600)
    """For one grading with all its questions; keep it below validator.step_s."""
    max_calls: int = Field(1_000_000, ge=1)
    """Questions that one process asks in its life; then nothing is graded any more."""
    label_ids: str = ""
    """Token ids of answer letters, "A=32, B=33", for endpoints that take logit_bias; empty = it is not sent."""


Ask = Callable[[Sequence[JudgeMessage], Labels], float]
Verdict = Literal["yes", "no", "undecided"]


class Bench:
    """A judge model with its budget; safe to use from several threads."""

    def __init__(self, model: JudgeModel, config: JudgeConfig, rng: random.Random, letters: str = LABELS) -> None:
        self._model = model
        self._config = config
        self.rng = rng
        self.letters = letters
        """For yes and no."""
        self._num_calls = 0
        self._counting = threading.Lock()

    def session(self) -> "Session":
        """One grading."""
        return Session(self, time.monotonic() + self._config.deadline_s)

    def ask(self, messages: Sequence[JudgeMessage], labels: Labels, deadline_s: float) -> float:
        """Raises `NoBallot`."""
        with self._counting:
            if self._num_calls >= self._config.max_calls:
                raise NoBallot(Trouble.BUDGET, f"max_calls is {self._config.max_calls}")
            self._num_calls += 1
        return self._model.ask(messages, labels, deadline_s)


class Session:
    """One grading: its questions share a deadline."""

    def __init__(self, bench: Bench, deadline_s: float) -> None:
        self._bench = bench
        self._deadline_s = deadline_s

    @property
    def rng(self) -> random.Random:
        return self._bench.rng

    def draw(self, *untrusted: str) -> Labels:
        """Letters for the next question, which do not stand alone in the texts."""
        return draw_labels(self._bench.rng, self._bench.letters, *untrusted)

    def ask(self, messages: Sequence[JudgeMessage], labels: Labels) -> float:
        """Raises `NoBallot`."""
        return self._bench.ask(messages, labels, self._deadline_s)


def endpoint_bench(config: JudgeConfig) -> Bench:
    """The endpoint that the operator's environment names, with draws that nobody can foresee."""
    ids = label_ids(config.label_ids)
    model = Endpoint(model=config.model, label_ids=ids)
    return Bench(model, config, random.SystemRandom(), "".join(ids) or LABELS)


def label_ids(text: str) -> Mapping[str, int]:
    """Raises `UserError` unless `text` is empty or names at least two letters with their token ids."""
    pairs = [part.partition("=") for part in text.replace(",", " ").split()]
    ids = {letter: int(number) for letter, _, number in pairs if letter in LABELS and number.isdecimal()}
    if len(ids) != len(pairs) or len(ids) == 1 or any(len(letter) != 1 for letter in ids):
        raise UserError(f"label_ids is {text!r}: write at least two of {LABELS} with token ids, for example A=32, B=33")
    return ids
