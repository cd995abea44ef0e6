"""`farflung sandbox doctor`: what this machine can enforce, tried out."""

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from farflung.errors import OurFault
from farflung.sandbox.code.attacks.corpus import CORPUS
from farflung.sandbox.code.doctor import Diagnosis, Trial, examine


def run_doctor(arguments: Namespace) -> int:
    """0 = every attack that this machine can stop was stopped; 1 = one was not. Raises `UserError` without walls."""
    diagnosis = None
    for found in examine(arguments.backend):
        if isinstance(found, Diagnosis):
            diagnosis = found
        elif sys.stderr.isatty():
            sys.stderr.write(f"\rtrying {len(CORPUS)} attacks: {found.attack:60.60}")
    if diagnosis is None:
        raise OurFault("the examination ended without a diagnosis")
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    if arguments.json:
        sys.stdout.write(f"{json.dumps({'is_sound': diagnosis.is_sound, **asdict(diagnosis)})}\n")
    else:
        _print(diagnosis)
    return 0 if diagnosis.is_sound else 1


def _print(diagnosis: Diagnosis) -> None:
    console = Console(file=sys.stdout, highlight=False)
    walls = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("wall", "", "how"):
        walls.add_column(title)
    for wall in diagnosis.walls:
        walls.add_row(wall.name, "yes" if wall.is_there else "no", wall.detail)
    attacks = Table(box=None, padding=(0, 1), header_style="dim")
    for title in ("", "attack", ""):
        attacks.add_column(title)
    for trial in diagnosis.trials:
        attacks.add_row(trial.threat, Text(trial.attack), Text(_word(trial)))
    console.print(walls, attacks)
    num_held = sum(trial.held for trial in diagnosis.trials)
    console.print(f"{num_held} of {len(diagnosis.trials)} attacks were stopped behind {diagnosis.backend}")


def _word(trial: Trial) -> str:
    if trial.held:
        return "stopped"
    return f"NOT STOPPED: {trial.detail}" if trial.expected_here else "not stopped here: no control groups"
