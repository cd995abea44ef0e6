"""`farflung data import|filter|decontaminate|show`: tasks from published data sets, chosen by how hard they are."""

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from farflung.cli.view import words
from farflung.data.decontaminate import MIN_WORDS, Overlaps
from farflung.data.formats import FORMATS, Skipped, convert, detect
from farflung.data.reading import records, source_of
from farflung.data.task_row import Manifest, TaskWriter, read_manifest, read_rows
from farflung.errors import UserError

Item = TypeVar("Item")

MAX_EXAMPLES = 3
EVERY = 500
"""Rows between two words about the progress."""


def run_data(arguments: Namespace) -> int:
    match arguments.action:
        case "import":
            return _import(arguments)
        case "decontaminate":
            return _decontaminate(arguments)
        case "filter":
            from farflung.cli.data.filtering import run_filter

            return run_filter(arguments)
        case _:
            return _show(arguments)


def _import(arguments: Namespace) -> int:
    paths = [Path(path) for path in arguments.files]
    rows = (record for path in paths for record in records(path))
    skipped: Counter[str] = Counter()
    seen: set[str] = set()
    name = None if arguments.format == "auto" else arguments.format
    with TaskWriter(Path(arguments.out)) as writer:
        for record in _with_progress(rows, "rows"):
            name = name or detect(record)
            if name is None:
                fields = ", ".join(sorted(record)[:12])
                raise UserError(f"rows with the fields {fields}: say which FORMAT it is, one of {', '.join(FORMATS)}")
            try:
                row = convert(name, record)
            except Skipped as reason:
                skipped[str(reason)] += 1
                continue
            if row.id in seen:
                skipped["id seen before"] += 1
                continue
            seen.add(row.id)
            writer.add(row)
        manifest = writer.finish(
            made_by=f"data import {name}",
            licence=arguments.licence,
            sources=[source for path in paths for source in source_of(path)],
            skipped=dict(skipped.most_common()),
        )
    _tell(manifest, Path(arguments.out), arguments.json)
    return 0


def _decontaminate(arguments: Namespace) -> int:
    if arguments.words < MIN_WORDS:
        raise UserError(f"--words is {arguments.words}: it must be at least {MIN_WORDS}, or common phrases match")
    overlaps = Overlaps(arguments.words)
    for name, texts in _evaluation_sets(arguments.against):
        overlaps.add(name, texts)
    source = Path(arguments.dataset)
    before = read_manifest(source)
    found: Counter[str] = Counter()
    examples: list[tuple[str, str]] = []
    with TaskWriter(Path(arguments.out)) as writer:
        for row in _with_progress(read_rows(source), "rows"):
            shared = overlaps.find(row.prompt)
            if shared is None:
                writer.add(row)
                continue
            found[f"shares {overlaps.size} words with {shared}"] += 1
            examples.append((row.id, shared))
        manifest = writer.finish(
            made_by=f"data decontaminate --words {overlaps.size}",
            licence=before.licence,
            sources=before.sources,
            skipped=dict(found),
        )
    _tell(manifest, Path(arguments.out), arguments.json)
    if not arguments.json:
        for row_id, shared in examples[:MAX_EXAMPLES]:
            sys.stdout.write(f"  {words.plain(row_id)} is in {shared}\n")
    return 0


def _evaluation_sets(against: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The bundled ones, and data sets or files that were named."""
    from farflung.envs.bundled import bundled_items
    from farflung.envs.gsm8k import FILE as GSM8K
    from farflung.envs.humaneval import FILE as HUMANEVAL

    yield "gsm8k-100", [item["question"] for item in bundled_items(GSM8K)]
    yield "humaneval", [item["prompt"] for item in bundled_items(HUMANEVAL)]
    for path in map(Path, against):
        if (path / "manifest.json").exists():
            yield path.name, [row.prompt for row in read_rows(path)]
        else:
            yield path.name, [text for record in records(path) for text in record.values() if isinstance(text, str)]


def _show(arguments: Namespace) -> int:
    folder = Path(arguments.dataset)
    manifest = read_manifest(folder)
    rows = list(read_rows(folder))
    _tell(manifest, folder, arguments.json)
    if not arguments.json:
        console = Console(file=sys.stdout, highlight=False)
        for row in rows[:MAX_EXAMPLES]:
            console.print(f"\n{words.plain(row.id)} · {row.grader}", style="bold")
            console.print("\n".join(map(words.plain, _shortened(row.prompt).splitlines())), markup=False)
    return 0


def _tell(manifest: Manifest, folder: Path, as_json: bool) -> None:
    if as_json:
        told = {
            "folder": str(folder),
            "num_tasks": manifest.num_tasks,
            "sha256": manifest.sha256,
            "graders": manifest.graders,
            "skipped": manifest.skipped,
            "licence": manifest.licence,
        }
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
        return
    console = Console(file=sys.stdout, highlight=False)
    console.print(f"{folder}: {manifest.num_tasks} tasks, licence {words.plain(manifest.licence)}")
    console.print(f"sha256 {manifest.sha256}")
    table = Table(box=None, padding=(0, 1), header_style="dim", show_header=False)
    for label, count in manifest.graders.items():
        table.add_row("graded by", label, words.count(count))
    for reason, count in manifest.skipped.items():
        table.add_row("left out", words.plain(reason), words.count(count))
    console.print(table)


def _with_progress(rows: Iterable[Item], what: str) -> Iterator[Item]:
    columns = (SpinnerColumn(), TextColumn("{task.completed} " + what))
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        bar = progress.add_task(what, total=None)
        for number, row in enumerate(rows, start=1):
            yield row
            if number % EVERY == 0:
                progress.update(bar, completed=number)


def _shortened(text: str, longest: int = 400) -> str:
    return text if len(text) <= longest else f"{text[:longest]} ..."
