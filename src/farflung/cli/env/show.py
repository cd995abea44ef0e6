"""`farflung env show TARGET`: what it asks, what can be set, where it is from."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgspec
from rich.console import Console

from farflung.cli.env.tables import plain, table
from farflung.cli.env.target import Target, opened
from farflung.cli.env_args import parse_env_args
from farflung.config.reference import Setting
from farflung.envs.arguments import arguments_of
from farflung.envs.base import Environment, Split, graders_of
from farflung.envs.checks.declared import repeats, verifier_of
from farflung.envs.checks.episodes import shown, sizes
from farflung.envs.digest import package_of
from farflung.envs.episode import num_agents_of
from farflung.envs.guest.environment import GuestEnvironment
from farflung.errors import UserError

MAX_README_CHARS = 20_000


def run_show(arguments: Namespace, settings: list[str]) -> int:
    """Print it. Raises as `target.opened`."""
    if arguments.tasks < 0:
        raise UserError(f"--tasks is {arguments.tasks}: it must be at least 0")
    args = parse_env_args(settings, "env show")
    with opened(
        arguments.target, seed=arguments.seed, args=args, entry=arguments.entry, trust=arguments.trust
    ) as target:
        examples = list(_examples(target.environment, arguments.tasks))
        settable = _arguments(target.environment)
        if arguments.json:
            told = {"facts": _facts(target), "arguments": [asdict(each) for each in settable], "examples": examples}
            manifest = msgspec.to_builtins(target.manifest) if target.manifest else None
            sys.stdout.write(f"{json.dumps({**told, 'manifest': manifest})}\n")
            return 0
        _print(target, settable, examples)
    return 0


def _print(target: Target, settable: tuple[Setting, ...], examples: list[dict[str, Any]]) -> None:
    console = Console(file=sys.stdout, highlight=False)
    console.print(table(("", ""), ((name, str(value)) for name, value in _facts(target).items())))
    if settable:
        rows = ((each.name, each.type, each.default, each.bounds, each.meaning) for each in settable)
        console.print()
        console.print(table(("argument", "type", "default", "bounds", "meaning"), rows))
    for example in examples:
        lines = [f"{message['role']}> {message['content']}" for message in example["prompt"]]
        lines += [f"{name}: {example[name]}" for name in ("answer", "demonstration") if example[name] is not None]
        sys.stdout.write(plain("\n" + "\n".join(lines) + "\n"))
    if target.readme:
        sys.stdout.write(f"\n{plain(target.readme[:MAX_README_CHARS]).rstrip()}\n")


def _facts(target: Target) -> dict[str, Any]:
    environment, manifest = target.environment, target.manifest
    facts: dict[str, Any] = {"name": environment.name}
    if manifest is None:
        package, release = package_of(environment)
        facts["package"] = f"{package} {release}".rstrip()
    else:
        facts |= {
            "package": f"{manifest.name} {manifest.version}",
            "digest": manifest.digest(),
            "licence": manifest.licence,
            "sandbox": manifest.sandbox,
            "files": f"{len(manifest.files)}, {manifest.num_bytes} bytes",
        }
    graders = ", ".join(spec.label for spec in graders_of(environment))
    return {
        **facts,
        "runs": target.origin,
        "tasks": ", ".join(f"{size} {split}" for split, size in sizes(environment)),
        "verifier": f"{verifier_of(environment)}{f' ({graders})' if graders else ''}",
        "reproducible": "yes" if repeats(environment) else "no",
        "agents": num_agents_of(environment),
        "target lengths": ", ".join(map(str, environment.target_lengths)) or "none",
        "characters": environment.alphabet() or "any",
    }


def _arguments(environment: Environment) -> tuple[Setting, ...]:
    return environment.arguments if isinstance(environment, GuestEnvironment) else arguments_of(environment)


def _examples(environment: Environment, count: int) -> Iterator[dict[str, Any]]:
    split: Split = "train" if environment.num_tasks else "heldout"
    for index in range(min(count, environment.num_tasks or environment.num_heldout_tasks)):
        targets = (0, *environment.target_lengths)
        task = environment.task(split, index, targets[index % len(targets)])
        turns = shown(environment, task, 0)
        yield {
            "task": task.task_id,
            "prompt": [{"role": each.role, "content": each.content} for each in task.messages],
            "answer": task.answer,
            "demonstration": None if turns is None else "\n".join(turn.text for turn in turns),
        }
