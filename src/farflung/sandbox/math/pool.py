"""A bounded pool of children that give second opinions on mathematics, for use from many threads.

    question took its CPU time, memory or stack   -> 0: the answer's doing (None if the gold was being read)
    child killed, machine too slow, no child free -> asked again, then None: never the answer's doing

Children start when they are needed, live for many questions, and are replaced when they end. The pool keeps its latest
verdicts, so that one degenerate answer of a whole group costs its limit once. A process that is forked begins with no
children of its own. The pool does not know policies of grading.
"""

import importlib.util
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from weakref import WeakSet

from farflung.errors import Transient, UserError
from farflung.rewards.decision import Decision
from farflung.sandbox.math.config import MathPoolConfig
from farflung.sandbox.math.process import End, MathChild, Outcome
from farflung.sandbox.math.protocol import Reply

_VERDICTS: dict[Reply | End, Decision] = {
    Reply.EQUAL: Decision(1.0, "second_opinion_equal"),
    Reply.DIFFERENT: Decision(0.0, "second_opinion_different"),
    Reply.UNCONFIRMED: Decision(0.0, "second_opinion_overruled"),
    Reply.ANSWER_UNREADABLE: Decision(0.0, "answer_unreadable"),
    Reply.GOLD_UNREADABLE: Decision(None, "gold_unparseable"),
    Reply.OUT_OF_MEMORY: Decision(0.0, "answer_too_large"),
    End.CPU_SPENT: Decision(0.0, "answer_too_slow"),
    End.CRASHED: Decision(0.0, "answer_too_deep"),
}
_POOLS: "WeakSet[MathPool]" = WeakSet()
_GOLD_OVER_LIMITS = Decision(None, "gold_unparseable", "the gold is over the limits of the sandbox")
_ONCE_IS_CHANCE = frozenset({Reply.OUT_OF_MEMORY, End.CRASHED})
"""What a child may owe to the questions before: believed when a fresh child ends so as well."""


def require_math_verify() -> None:
    """Raises `UserError` where the children's library is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise UserError("math-verify is not installed: `pip install 'farflung[math]'`")


class MathPool:
    """Second opinions: `with MathPool() as pool: pool.ask("1/2", "0.5")`. Thread-safe; no child starts before `ask`."""

    def __init__(self, config: MathPoolConfig | None = None, *, command: Sequence[str] | None = None) -> None:
        """
        Args:
            command: what to start instead of the shipped child; for tests.
        """
        self._config = config or MathPoolConfig()
        self._command = command
        self._known: OrderedDict[tuple[str, str], Decision] = OrderedDict()
        self._is_closed = False
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        """Without children; locks are new too, since a fork may have copied them locked."""
        self._free = threading.BoundedSemaphore(self._config.max_children)
        self._lock = threading.Lock()
        self._idle: list[MathChild] = []
        self._busy: set[MathChild] = set()

    def ask(self, gold: str, answer: str) -> Decision:
        """Is `answer` equal to `gold`, both LaTeX without a box? No text makes it raise; see the module's table."""
        if len(gold) > self._config.max_text_chars:
            return _GOLD_OVER_LIMITS
        if len(answer) > self._config.max_text_chars:
            return Decision(0.0, "answer_too_large")
        if known := self._recall(gold, answer):
            return known
        if not self._free.acquire(timeout=self._config.wait_wall_s):
            return Decision(None, "sandbox_busy", f"no child was free for {self._config.wait_wall_s:g} s")
        try:
            return self._recall(gold, answer) or self._remember(gold, answer, self._answer(gold, answer))
        finally:
            self._free.release()

    def close(self) -> None:
        """End all children; questions in flight and later ones are answered with None."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.kill()
        for child in idle:
            child.end()

    def begin_after_fork(self) -> None:
        """In the forked process, before it has other threads: the children are the parent's."""
        for child in (*self._idle, *self._busy):
            child.forget()
        self._begin()

    def pids(self) -> list[int]:
        """Process ids of all children."""
        with self._lock:
            return [child.pid for child in (*self._idle, *self._busy)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _answer(self, gold: str, answer: str) -> Decision:
        reason = ""
        for _ in range(self._config.max_attempts):
            try:
                child = self._take()
            except Transient as error:
                reason = str(error)
                continue
            if child is None:
                return Decision(None, "sandbox_closed")
            is_fresh = child.num_questions == 0
            outcome = self._ask_child(child, gold, answer)
            decision = _decided(outcome, is_fresh=is_fresh)
            if decision is not None:
                return decision
            reason = f"a child ended: {outcome.word}"
        return Decision(None, "sandbox_failed", f"{self._config.max_attempts} attempts; the last: {reason}")

    def _ask_child(self, child: MathChild, gold: str, answer: str) -> Outcome:
        try:
            outcome = child.ask(gold, answer)
        except BaseException:  # Ctrl-C: a reply may still come, so that nobody can ask this child again
            with self._lock:
                self._busy.discard(child)
            child.end()
            raise
        self._give_back(child, outcome)
        return outcome

    def _take(self) -> MathChild | None:
        """An idle child, or a new one; None when the pool is closed."""
        with self._lock:
            if self._is_closed:
                return None
            if self._idle:
                child = self._idle.pop()
                self._busy.add(child)
                return child
        child = MathChild(self._config, self._command)
        return child if self._admit(child) else None

    def _admit(self, child: MathChild) -> bool:
        """Whether the pool is still open for it, which may have changed while the child started."""
        with self._lock:
            is_open = not self._is_closed
            if is_open:
                self._busy.add(child)
        if not is_open:
            child.end()
        return is_open

    def _give_back(self, child: MathChild, outcome: Outcome) -> None:
        is_gone = isinstance(outcome.word, End)
        is_worn = child.num_questions >= self._config.max_questions or outcome.word is Reply.OUT_OF_MEMORY
        with self._lock:
            self._busy.discard(child)
            if not (is_gone or is_worn or self._is_closed):
                self._idle.append(child)
                return
        if not is_gone:
            child.end()

    def _recall(self, gold: str, answer: str) -> Decision | None:
        with self._lock:
            decision = self._known.get((gold, answer))
            if decision is not None:
                self._known.move_to_end((gold, answer))
            return decision

    def _remember(self, gold: str, answer: str, decision: Decision) -> Decision:
        """Verdicts are kept; what only the machine is to blame for is not."""
        if decision.rule.startswith("sandbox"):
            return decision
        with self._lock:
            self._known[gold, answer] = decision
            if len(self._known) > self._config.max_known:
                self._known.popitem(last=False)
        return decision


def _decided(outcome: Outcome, *, is_fresh: bool) -> Decision | None:
    """The verdict that an outcome stands for; None = ask again."""
    verdict = _VERDICTS.get(outcome.word)
    if verdict is None or (outcome.word in _ONCE_IS_CHANCE and not is_fresh):
        return None
    if verdict.verdict == 0.0 and not outcome.is_gold_read:
        return _GOLD_OVER_LIMITS
    return verdict


def _begin_after_fork() -> None:
    for pool in _POOLS:
        pool.begin_after_fork()


os.register_at_fork(after_in_child=_begin_after_fork)
