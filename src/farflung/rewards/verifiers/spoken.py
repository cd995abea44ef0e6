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
    marked = tagged(spoken)
    text = spoken if marked is None else marked
    block = last_block(text)
    return (text if block is None else block).replace("\r\n", "\n").strip("\n")


def last_block(text: str) -> str | None:
    """Content of the last closed fenced block; None if there is none."""
    last = None
    for block in code_blocks(text):
        if block.is_closed:
            last = block.code
    return last
