"""Checks of grading: golds are right, blanks are worth nothing, no text breaks it, and it is fast enough.

An environment of one turn must find each of its demonstrations correct and no blank completion; where several turns or
agents play, demonstrations must on average earn more than silence, since somebody always wins.
"""

import time
from collections.abc import Sequence
from statistics import fmean

from farflung.envs.base import Environment, Grade
from farflung.envs.checks.episodes import grades_of, said, sampled, shown
from farflung.envs.checks.hostile import BLANK, LONG, SHORT
from farflung.envs.checks.report import Check, failed, left_out, passed
from farflung.envs.episode import AgentTurn, Episodic
from farflung.wire.task import Task

MAX_ABS_REWARD = 1000.0
"""What pools allow by default (`wire.pool.PoolSpec.max_abs_reward`)."""
NUM_HOSTILE_TASKS = 2


def check_golds(environment: Environment, num_tasks: int) -> Check:
    """Each demonstration, or reference answer, is correct."""
    name, num_shown = "golds", 0
    for task in sampled(environment, num_tasks):
        turns = shown(environment, task, 0) or _answer_as_turn(environment, task)
        if turns is None:
            continue
        grades = grades_of(environment, task, turns)
        if problem := _problem(grades):
            return failed(name, f"the demonstration of {task.task_id}: {problem}")
        if not isinstance(environment, Episodic) and grades[0].correct != 1.0:
            return failed(name, f"{turns[0].text[:80]!r} for {task.task_id} is correct {grades[0].correct}, not 1")
        num_shown += 1
    if not num_shown:
        return left_out(name, "it demonstrates nothing, and its reference answers are no completions")
    return passed(name, f"{num_shown} demonstrations are graded{'' if _has_turns(environment) else ' 1'}")


def check_blanks(environment: Environment, num_tasks: int) -> Check:  # threat E7
    """Nothing said is never correct and never paid."""
    name = "blank completions"
    tasks = list(sampled(environment, num_tasks))
    if isinstance(environment, Episodic):
        return _silence_earns_less(name, environment, tasks)
    for task in tasks:
        for text in BLANK:
            grade = environment.grade(task, text)
            if problem := _problem([grade]):
                return failed(name, f"{text!r} for {task.task_id}: {problem}")
            if grade.correct != 0.0 or grade.reward is None or grade.reward > 0:
                return failed(name, f"{text!r} for {task.task_id} is correct {grade.correct}, reward {grade.reward}")
    return passed(name, f"{len(BLANK)} kinds of nothing for {len(tasks)} tasks are worth nothing")


def check_hostile(environment: Environment, max_grade_s: float) -> Check:
    """No text makes it raise, pay without bounds, or take long."""
    name, slowest_s = "hostile completions", 0.0
    tasks = list(sampled(environment, 1))[:NUM_HOSTILE_TASKS]
    for task in tasks:
        gold = shown(environment, task, 0)
        ending = gold[-1].text if gold else task.answer
        for text in (*BLANK, *SHORT, *LONG, *(ending + each for each in SHORT), *(each + ending for each in SHORT)):
            began = time.perf_counter()
            try:
                turns = said(environment, task, text)
                problem = _problem(grades_of(environment, task, turns))
            except Exception as error:  # noqa: BLE001 - other people's code; that it raises is the finding
                problem = f"raises {type(error).__name__}: {error}"
            took_s = time.perf_counter() - began
            slowest_s = max(slowest_s, took_s)
            if problem or took_s > max_grade_s:
                return failed(name, f"{text[:60]!r} for {task.task_id}: {problem or f'took {took_s:.1f} s'}")
    return passed(name, f"none raises; the slowest takes {1000 * slowest_s:.1f} ms")


def check_speed(environment: Environment, num_tasks: int, max_grade_s: float) -> Check:
    """Tasks and grades per second, of ordinary ones."""
    name, began = "speed", time.perf_counter()
    tasks = list(sampled(environment, num_tasks))
    made_s, began = time.perf_counter() - began, time.perf_counter()
    for task in tasks:
        grades_of(environment, task, said(environment, task, task.answer))
    graded_s = time.perf_counter() - began
    detail = f"{_rate(len(tasks), made_s)} tasks/s, {_rate(len(tasks), graded_s)} grades/s"
    slow = max(made_s, graded_s) > max_grade_s * len(tasks)
    return failed(name, f"{detail}: slower than {max_grade_s:g} s each") if slow else passed(name, detail)


def _silence_earns_less(name: str, environment: Environment, tasks: Sequence[Task]) -> Check:
    silent: list[float] = []
    spoken: list[float] = []
    for task in tasks:
        for text in BLANK:
            grades = grades_of(environment, task, said(environment, task, text))
            if problem := _problem(grades):
                return failed(name, f"{text!r} at every turn of {task.task_id}: {problem}")
            silent += [grade.reward or 0.0 for grade in grades]
        turns = shown(environment, task, 0)
        spoken += [grade.reward or 0.0 for grade in grades_of(environment, task, turns)] if turns else []
    if not spoken:
        return left_out(name, f"silence earns {fmean(silent):.2f} on average; it demonstrates nothing to compare")
    detail = f"silence earns {fmean(silent):.2f} on average, demonstrations {fmean(spoken):.2f}"
    return passed(name, detail) if fmean(silent) < fmean(spoken) else failed(name, detail)


def _problem(grades: Sequence[Grade]) -> str:
    """What no grade may be, in words."""
    for grade in grades:
        if grade.reward is None:
            return "has no grade: only a task whose reference is unusable may have none"
        if outside := grade.out_of_range(MAX_ABS_REWARD):
            return outside
        if grade.correct is not None and not 0 <= grade.correct <= 1:
            return f"correct is {grade.correct}, and 0 to 1 are possible"
    return ""


def _answer_as_turn(environment: Environment, task: Task) -> tuple[AgentTurn, ...] | None:
    """The reference itself, where it happens to be a completion."""
    if isinstance(environment, Episodic) or environment.grade(task, task.answer).correct != 1.0:
        return None
    return (AgentTurn(agent=0, text=task.answer),)


def _has_turns(environment: Environment) -> bool:
    return isinstance(environment, Episodic)


def _rate(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 1e-9):,.0f}"
