"""What of a completion is the answer, where the whole answer is text of several lines.

    spoken_text  after the thinking part
    answer_text  of that, what stands between <answer> and </answer>, else in the last fenced block, else all of it

A block that is cut short is none, as in `rewards.code_blocks`. Line ends are "\\n" in the result. Linear.
"""

from farflung.rewards.code_blocks import code_blocks
from farflung.rewards.extract import after_thinking, tagged


def spoken_text(completion: str) -> str:
    """What follows the thinking part, without outer white space; "" while that part is open."""
    return (after_thinking(completion) or "").strip()


def answer_text(completion: str) -> str:
    """The answer without outer line ends; "" if there is none."""
    spoken = after_thinking(completion) or ""
    marked = marked_text(spoken)
    return spoken.replace("\r\n", "\n").strip("\n") if marked is None else marked


def marked_text(spoken: str) -> str | None:
    """The answer where one is marked: in <answer>, there or else in the last closed block; None without a mark."""
    marked = tagged(spoken)
    block = last_block(spoken if marked is None else marked)
    found = marked if block is None else block
    return None if found is None else found.replace("\r\n", "\n").strip("\n")


def last_block(text: str) -> str | None:
    """Content of the last closed fenced block; None if there is none."""
    last = None
    for block in code_blocks(text):
        if block.is_closed:
            last = block.code
    return last
