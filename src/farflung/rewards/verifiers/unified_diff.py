"""Unified diffs: read and applied exactly, in time linear in diff and texts.

    --- a/path          --- /dev/null for a new file; `diff --git`, `index` and mode lines before it are passed over
    +++ b/path          +++ /dev/null for a deleted one
    @@ -start,count +start,count @@ anything
     kept
    -removed
    +added
    \\ No newline at end of file

White space at the end of a reply is often lost, so kept empty lines that end the diff, at most `MAX_LOST`, may be
absent. All else is exact: every hunk stands where its numbers say, its kept and removed lines are those of the file,
the counts are right, and hunks come in order and do not overlap. No fuzz, no search. `patch` is more forgiving; a
reward must not be.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@(?: .*)?", re.ASCII)
_PASSED_OVER = ("diff --git ", "index ", "new file mode ", "deleted file mode ", "old mode ", "new mode ")
NO_FILE = "/dev/null"
MAX_LOST = 3
"""Lines of context that a diff usually has."""
NO_NEWLINE = "\\ No newline at end of file"


class NotADiff(ValueError):
    """The text is not a unified diff, or one that does not fit the files."""


@dataclass(slots=True)
class Hunk:
    old_start: int
    """Line number from 1; with no old lines the number of the line before, 0 at the beginning."""
    num_old: int
    new_start: int
    num_new: int
    old: list[str] = field(default_factory=list)
    """Lines with their line ends: kept and removed ones."""
    new: list[str] = field(default_factory=list)
    """Kept and added ones."""
    num_changed: int = 0
    """Removed and added lines."""


@dataclass(slots=True)
class FileDiff:
    old_path: str
    """`NO_FILE` for a new file; otherwise without the `a/` of git."""
    new_path: str
    hunks: list[Hunk] = field(default_factory=list)


def parse_diff(text: str) -> list[FileDiff]:
    """Read a diff of any number of files.

    Raises:
        NotADiff: with the line that does not belong.
    """
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    files: list[FileDiff] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        if line.startswith("--- ") and position + 1 < len(lines) and lines[position + 1].startswith("+++ "):
            files.append(FileDiff(_path(line, "a/"), _path(lines[position + 1], "b/")))
            position += 2
        elif (match := _HUNK.fullmatch(line)) and files:
            position = _read_hunk(lines, position, match, files[-1])
        elif line.startswith(_PASSED_OVER):
            position += 1
        else:
            raise NotADiff(f"line {position + 1} is no part of a diff")
    if not files or not all(each.hunks for each in files):
        raise NotADiff("a file without a hunk")
    return files


def apply_diff(files: list[FileDiff], before: Mapping[str, str]) -> dict[str, str]:
    """All texts after the diff, by path.

    Raises:
        NotADiff: it does not fit `before`.
    """
    after = dict(before)
    touched: set[str] = set()
    for each in files:
        path = each.new_path if each.old_path == NO_FILE else each.old_path
        if path in touched or each.new_path not in (path, NO_FILE):
            raise NotADiff("a file comes twice, or is renamed")
        touched.add(path)
        if (each.old_path == NO_FILE) == (path in before):
            raise NotADiff("a new file exists, or an old one does not")
        text = _changed(before.get(path, ""), each.hunks)
        if each.new_path != NO_FILE:
            after[path] = text
        elif text:
            raise NotADiff("a deleted file keeps lines")
        else:
            del after[path]
    return after


def _path(line: str, prefix: str) -> str:
    path = line[4:].split("\t", 1)[0].strip()
    return path if path == NO_FILE else path.removeprefix(prefix)


def _read_hunk(lines: list[str], position: int, match: re.Match[str], into: FileDiff) -> int:
    """Returns the position after the hunk."""
    old_start, num_old, new_start, num_new = (1 if part is None else int(part) for part in match.groups())
    hunk = Hunk(old_start, num_old, new_start, num_new)
    position += 1
    while position < len(lines) + MAX_LOST and (len(hunk.old) < num_old or len(hunk.new) < num_new):
        _add_line(hunk, lines[position] if position < len(lines) else "")
        position += 1
        if position < len(lines) and lines[position].rstrip() == NO_NEWLINE:
            _without_newline(hunk, lines[position - 1])
            position += 1
    if (len(hunk.old), len(hunk.new)) != (num_old, num_new):
        raise NotADiff("a hunk has other numbers of lines than its head says")
    into.hunks.append(hunk)
    return position


def _add_line(hunk: Hunk, line: str) -> None:
    sign, content = line[:1], line[1:] + "\n"
    if sign not in ("", " ", "-", "+"):
        raise NotADiff("a hunk's line begins with none of space, - and +")
    if sign != "+":  # an empty line is a kept empty one whose space was lost
        hunk.old.append(content)
    if sign != "-":
        hunk.new.append(content)
    hunk.num_changed += sign in ("-", "+") and sign != ""


def _without_newline(hunk: Hunk, line: str) -> None:
    """The line just read is the last of its text and has no line end."""
    sign = line[:1]
    for lines in ([hunk.old] if sign != "+" else []) + ([hunk.new] if sign != "-" else []):
        lines[-1] = lines[-1].removesuffix("\n")


def _changed(text: str, hunks: list[Hunk]) -> str:
    lines = _with_ends(text)
    result: list[str] = []
    position = 0
    for hunk in hunks:
        start = hunk.old_start - 1 if hunk.num_old else hunk.old_start
        if start < position or lines[start : start + hunk.num_old] != hunk.old or start > len(lines):
            raise NotADiff("a hunk does not fit the file")
        result += lines[position:start]
        if len(result) != (hunk.new_start - 1 if hunk.num_new else hunk.new_start):
            raise NotADiff("a hunk's new line number is wrong")
        result += hunk.new
        position = start + hunk.num_old
    result += lines[position:]
    if any(not line.endswith("\n") for line in result[:-1]):
        raise NotADiff("a line in the middle has no line end")
    return "".join(result)


def _with_ends(text: str) -> list[str]:
    """Lines with their "\\n"; no other character ends a line."""
    pieces = text.split("\n")
    return [piece + "\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
