"""`farflung env test TARGET`: every check as a line; 0 = none failed, 1 = one did."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from farflung.cli.env.tables import table
from farflung.cli.env.target import Target, is_folder, opened, opened_package
from farflung.cli.env_args import parse_env_args
from farflung.envs.checks.report import Check, Outcome
from farflung.envs.checks.run import Options, check_environment
from farflung.envs.packages.project import Package, read_project
from farflung.errors import UserError
from farflung.model.tokenizer import Tokenizer


def run_test(arguments: Namespace, settings: list[str]) -> int:
    """Of a project folder, every environment unless one is named. Raises as `target.opened`."""
    args, options = parse_env_args(settings, "env test"), _options(arguments)
    found: dict[str, list[Check]] = {}
    if is_folder(arguments.target):
        package = read_project(Path(arguments.target))
        names = [arguments.entry] if arguments.entry else [each.name for each in package.manifest.environments]
        for name in names:
            with opened_package(package, seed=arguments.seed, args=args, entry=name, trust=arguments.trust) as target:
                found[name] = checks_of(target, options)
    else:
        with opened(
            arguments.target, seed=arguments.seed, args=args, entry=arguments.entry, trust=arguments.trust
        ) as target:
            found[arguments.target] = checks_of(target, options)
    if arguments.json:
        told = {name: [asdict(check) for check in checks] for name, checks in found.items()}
        sys.stdout.write(f"{json.dumps({'passed': not failures(found.values()), 'environments': told})}\n")
    else:
        for name, checks in found.items():
            show_checks(name, checks)
    return 1 if failures(found.values()) else 0


def check_package(package: Package, *, trust: bool) -> dict[str, list[Check]]:
    """Every environment of a package."""
    found: dict[str, list[Check]] = {}
    for each in package.manifest.environments:
        with opened_package(package, seed=0, args={}, entry=each.name, trust=trust) as target:
            found[each.name] = checks_of(target, Options())
    return found


def checks_of(target: Target, options: Options) -> list[Check]:
    """In order."""
    return list(check_environment(target.environment, target.pair(), options, target.manifest))


def failures(found: Iterable[Sequence[Check]]) -> list[Check]:
    """Checks that failed."""
    return [check for checks in found for check in checks if check.outcome is Outcome.FAILED]


def show_checks(name: str, checks: Sequence[Check]) -> None:
    """The table of one environment."""
    rows = [(_word(check.outcome), check.name, check.detail) for check in checks]
    Console(file=sys.stdout, highlight=False).print(table(("", name, ""), rows))


def _word(outcome: Outcome) -> str:
    return outcome.upper() if outcome is Outcome.FAILED else outcome


def _options(arguments: Namespace) -> Options:
    for name, least in (("tasks", 1), ("max_prompt_tokens", 0), ("max_completion_tokens", 0), ("max_grade", 0.001)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name.replace('_', '-')} is {getattr(arguments, name)}: it must be at least {least}")
    return Options(
        num_tasks=arguments.tasks,
        max_grade_s=arguments.max_grade,
        tokenizer=_tokenizer(Path(arguments.model)) if arguments.model else None,
        max_prompt_tokens=arguments.max_prompt_tokens,
        max_completion_tokens=arguments.max_completion_tokens,
    )


def _tokenizer(folder: Path) -> Tokenizer:
    from farflung.model.folder import load_folder

    return Tokenizer.from_files(load_folder(folder).tokenizer_files)
