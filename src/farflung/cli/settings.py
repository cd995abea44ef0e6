"""`farflung settings [WORD]`: what can be set, with type, default, bounds and meaning.

docs/settings.md is the same for all of them: `farflung settings --markdown > docs/settings.md`.
"""

import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from farflung.cli.config import RunConfig
from farflung.cli.serve import ServeSettings
from farflung.cli.sft import SftSettings
from farflung.config import fields
from farflung.config.reference import Section, Setting, sections
from farflung.errors import UserError

WIDTH = 100
HEADER = """\
# Settings

Every key of a configuration: `farflung run my.toml --section.key VALUE`, or `key = VALUE` under `[section]` of the
file. `farflung run my.toml --dry-run` prints which value a run takes from where; `farflung settings WORD` prints a part
of this page. The sections `sft` and `serve` belong to the commands of these names.

Made by `farflung settings --markdown`.
"""
CONFIGS = (RunConfig, SftSettings, ServeSettings)


def run_settings(arguments: Namespace) -> int:
    """Print them. Raises `UserError` when no setting has the word in it."""
    found = [section for config in CONFIGS for section in sections(config)]
    if arguments.markdown:
        sys.stdout.write(as_markdown(found))
        return 0
    shown = matching(found, arguments.word or "")
    if not shown:
        close = next(filter(None, (fields.closest(config, arguments.word) for config in CONFIGS)), None)
        names = ", ".join(name for config in CONFIGS for name in config.model_fields)
        hint = f"did you mean {close}?" if close else f"sections are {names}"
        raise UserError(f"no setting has {arguments.word!r} in its name or meaning; {hint}")
    sys.stdout.writelines(f"{line}\n" for line in as_text(shown))
    return 0


def matching(found: Sequence[Section], word: str) -> list[Section]:
    """Settings with `word` in their names; where no name has it, those with it in their meanings."""
    by_name = _filtered(found, lambda setting: word.lower() in setting.name.lower())
    return by_name or _filtered(found, lambda setting: word.lower() in setting.meaning.lower())


def _filtered(found: Sequence[Section], is_wanted: Callable[[Setting], bool]) -> list[Section]:
    kept = (replace(section, settings=tuple(filter(is_wanted, section.settings))) for section in found)
    return [section for section in kept if section.settings]


def as_text(shown: Sequence[Section]) -> Iterator[str]:
    for section in shown:
        yield f"[{section.name}]  {section.meaning}"
        for setting in section.settings:
            yield f"  {setting.name} = {setting.default}" if setting.default else f"  {setting.name}"
            rules = "; ".join(filter(None, (setting.type, setting.bounds, setting.unit)))
            yield from textwrap.wrap(f"{rules}. {setting.meaning}", WIDTH, initial_indent="      ",
                                     subsequent_indent="      ")  # fmt: skip
        yield ""


def as_markdown(found: Sequence[Section]) -> str:
    lines = [HEADER]
    for section in found:
        lines += [f"## {section.name}", "", section.meaning, ""]
        lines += ["| key | type | default | bounds, unit | meaning |", "|---|---|---|---|---|"]
        lines += [_row(setting) for setting in section.settings]
        lines.append("")
    return "\n".join(lines)


def _row(setting: Setting) -> str:
    rules = "; ".join(filter(None, (setting.bounds, setting.unit)))
    default = f"`{setting.default}`" if setting.default else ""
    cells = (f"`{setting.name}`", setting.type, default, rules, setting.meaning)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"
