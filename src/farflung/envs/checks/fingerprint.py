"""An environment in two hashes: what it asks, and what it pays for the same texts.

    echo '[{"name": "sort-digits", "seed": 0, "args": {}}]' | python -m farflung.envs.checks.fingerprint

Two processes with different PYTHONHASHSEED that print different hashes have found what depends on the order of a set,
on the clock or on chance. A process of its own also ends when an environment hangs.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from farflung.envs.base import Environment
from farflung.envs.checks.episodes import grades_of, said, sampled, shown
from farflung.envs.checks.hostile import BLANK, SHORT
from farflung.envs.packages.agreed import agreed_factory
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.wire.pool import EnvArg

HASH_SEEDS = (1, 2)
_NUM_TASKS = 16
_NUM_GRADED = 4
_MAX_TOLD_BYTES = 1 << 20


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Which environment."""

    name: str
    """As pools call it; with a folder, `module:object` in there."""
    seed: int = 0
    args: Mapping[str, EnvArg] = {}
    folder: str = ""
    """Of code that this user agreed to run; "" = by name."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Hex sha256 each; or what went wrong."""

    tasks: str = ""
    grades: str = ""
    error: str = ""


def fingerprint(environment: Environment) -> Fingerprint:
    """Raises whatever the environment raises."""
    tasks, grades = hashlib.sha256(), hashlib.sha256()
    facts = (environment.name, environment.num_tasks, environment.num_heldout_tasks, environment.target_lengths)
    tasks.update(repr((*facts, environment.alphabet())).encode())
    for number, task in enumerate(sampled(environment, _NUM_TASKS)):
        demonstration = shown(environment, task, number)
        for part in (task.to_bytes(), msgspec.json.encode(demonstration)):
            tasks.update(len(part).to_bytes(8, "big") + part)
        if number >= _NUM_GRADED:
            continue
        episodes = [said(environment, task, text) for text in (*BLANK[:1], *SHORT)]
        for turns in [*episodes, *([demonstration] if demonstration else [])]:
            grades.update(msgspec.json.encode(grades_of(environment, task, turns), order="deterministic"))
    return Fingerprint(tasks=tasks.hexdigest(), grades=grades.hexdigest())


def fingerprints(subjects: Sequence[Subject], hash_seed: int, limit_s: float) -> list[Fingerprint]:
    """Of several environments, from one process of this user with that hash seed."""
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=msgspec.json.encode(subjects),
            capture_output=True,
            timeout=limit_s,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": paths},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Fingerprint(error=f"took longer than {limit_s:g} s to ask and grade a few tasks")] * len(subjects)
    lines = done.stdout[-_MAX_TOLD_BYTES:].splitlines()
    if done.returncode or not lines:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        return [Fingerprint(error=f"the process ended with code {done.returncode}: {last}")] * len(subjects)
    return msgspec.json.decode(lines[-1], type=list[Fingerprint])


def main() -> None:
    """Hashes of each, as one line; environments may print before it."""
    subjects = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Subject])
    print(msgspec.json.encode([_one(subject) for subject in subjects]).decode())


def _one(subject: Subject) -> Fingerprint:
    try:
        return fingerprint(_load(subject))
    except UserError as error:
        return Fingerprint(error=str(error))
    except Exception as error:  # noqa: BLE001 - other people's code; what it raises is what is asked for
        return Fingerprint(error=f"{type(error).__name__}: {error}"[:500])


def _load(subject: Subject) -> Environment:
    if subject.folder:
        return agreed_factory(Path(subject.folder), subject.name)(subject.seed, subject.args)
    return load_environment(subject.name, subject.seed, subject.args)


if __name__ == "__main__":
    main()
