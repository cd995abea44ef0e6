"""The table of sampled completions with their rewards, one HTML file that needs nothing else.

Prompts and completions are text from a model, so the template escapes everything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

MAX_VERSIONS_SHOWN = 60
MAX_TEXT_CHARS = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionSamples:
    """What one policy version wrote."""

    version: int
    rows: tuple[Mapping[str, Any], ...]

    @property
    def mean_reward(self) -> float | None:
        rewards = [float(row["reward"]) for row in self.rows if row.get("reward") is not None]
        return sum(rewards) / len(rewards) if rewards else None


def write_samples(path: Path, samples: Iterable[Mapping[str, Any]], *, title: str) -> None:
    """Write the page.

    Args:
        samples: rows of samples.jsonl with `version`, `task_id`, `prompt`, `completion`, `reward`, `correct`,
            `target_length`.
    """
    versions = spread(by_version(samples), MAX_VERSIONS_SHOWN)
    template = resources.files("farflung.cli.report").joinpath("samples.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    has_targets = any(row.get("target_length") for version in versions for row in version.rows)
    page = environment.from_string(template).render(
        title=title, versions=versions, has_targets=has_targets, max_chars=MAX_TEXT_CHARS
    )
    path.write_text(page, encoding="utf-8")


def by_version(samples: Iterable[Mapping[str, Any]]) -> list[VersionSamples]:
    """Samples grouped by the version that wrote them, oldest first."""
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for row in samples:
        groups.setdefault(int(row["version"]), []).append(row)
    return [VersionSamples(version=version, rows=tuple(groups[version])) for version in sorted(groups)]


def spread(versions: list[VersionSamples], max_count: int) -> list[VersionSamples]:
    """At most `max_count` of them, evenly spread, the first and the last kept."""
    if len(versions) <= max_count:
        return versions
    step = (len(versions) - 1) / (max_count - 1)
    return [versions[round(i * step)] for i in range(max_count)]
