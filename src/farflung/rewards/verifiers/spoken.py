"""What of a completion is the answer, where the whole answer is text of several lines.

    spoken_text  after the thinking part
    answer_text  of that, what stands between <answer> and </answer>, else in the last fenced block, else all of it

A block is what stands between a line that begins with three or more backticks or tildes and the next line of as many of
the same and nothing else; without that line it runs to the end. Line ends are "\\n" in the result. Linear.
"""

import re

from farflung.rewards.extract import after_thinking, tagged

_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})(.*)")


def spoken_text(completion: str) -> str:
    """What follows the thinking part, without outer white space; "" while that part is open."""
    return (after_thinking(completion) or "").strip()


def answer_text(completion: str) -> str:
    """The answer without outer line ends; "" if there is none."""
    spoken = after_thinking(completion) or ""
    marked = tagged(spoken)
    text = spoken if marked is None else marked
    block = last_block(text)
    return (text if block is None else block).replace("\r\n", "\n").strip("\n")


def last_block(text: str) -> str | None:
    """Content of the last fenced block; None if there is none."""
    last: list[str] | None = None
    fence = ""
    for line in text.splitlines():
        match = _FENCE.fullmatch(line)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            else:
                assert last is not None
                last.append(line)
        elif match and "`" not in match[2]:
            fence, last = match[1], []
    return None if last is None else "\n".join(last)
