"""Examples -> training samples: ids piece by piece, as sampling would have made them, loss on the assistant alone.

    prompt as rendered | assistant's text, end-of-turn id | what the template puts between | assistant's text ...
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^                                      ^^^^^^^^^^^^^^^^

An assistant's text is encoded apart from what precedes it, because that is where a model starts to draw. Does not know
files or models.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from farflung.errors import UserError
from farflung.model.tokenizer import Tokenizer
from farflung.rl.types import TrainingSample
from farflung.trainer.sft.data import Example

TOO_LONG = "too_long"
EMPTY = "without_an_answer"
REWRITTEN = "template_rewrites_history"
"""Skipped: a template that shows earlier turns otherwise than they were said has no sequence to train on."""


def encode_examples(
    examples: Sequence[Example], tokenizer: Tokenizer, *, max_tokens: int
) -> tuple[list[TrainingSample], Counter[str]]:
    """(samples in order, reason -> examples left out).

    Raises:
        UserError: the template refuses an example, or the tokenizer cannot spell it; with its number.
    """
    samples, skipped = list[TrainingSample](), Counter[str]()
    for number, example in enumerate(examples):
        try:
            encoded = encode(example, tokenizer)
        except UserError as error:
            raise UserError(f"example {number + 1}: {error}") from error
        if encoded is None:
            skipped[REWRITTEN] += 1
        elif not encoded[0]:
            skipped[EMPTY] += 1
        elif len(encoded[0]) > max_tokens:
            skipped[TOO_LONG] += 1
        else:
            samples.append(_sample(number, *encoded))
    return samples, skipped


def encode(example: Example, tokenizer: Tokenizer) -> tuple[list[int], list[bool]] | None:
    """(ids, whether each is to be learned); none of them where no assistant says anything.

    None where the template rewrites earlier turns.
    """
    ids, learned, text = list[int](), list[bool](), ""
    for index, message in enumerate(example.messages):
        if message["role"] != "assistant":
            continue
        before = tokenizer.render_marked(example.messages[:index])
        after = tokenizer.render_marked(example.messages[: index + 1], add_generation_prompt=False)
        if not before.text.startswith(text) or not after.text.startswith(before.text):
            return None
        context = tokenizer.encode_rendered(before.rest(len(text)))
        said = tokenizer.encode_rendered(after.rest(len(before.text)))
        spoken, rest = _to_end_of_turn(said, tokenizer.eos_token_ids)
        ids += [*context, *spoken, *rest]
        learned += [False] * len(context) + [True] * len(spoken) + [False] * len(rest)
        text = after.text
    while learned and not learned[-1]:  # nothing is learned from what follows the last answer
        ids.pop()
        learned.pop()
    return ids, learned


def _to_end_of_turn(ids: list[int], eos_token_ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """Up to and with the last end-of-turn id; all of it where the template writes none."""
    ends = [index for index, token in enumerate(ids) if token in eos_token_ids]
    cut = ends[-1] + 1 if ends else len(ids)
    return ids[:cut], ids[cut:]


def _sample(number: int, ids: list[int], learned: list[bool]) -> TrainingSample:
    start = max(1, learned.index(True))
    num_completion = len(ids) - start
    return TrainingSample(
        tokens=np.array(ids, dtype=np.int32),
        num_prompt_tokens=start,
        behaviour_logprobs=np.zeros(num_completion, dtype=np.float32),
        advantages=np.ones(num_completion, dtype=np.float32),
        loss_mask=np.array(learned[start:], dtype=np.bool_),
        policy_version=0,
        slot=0,
        group=number,
        sample=0,
    )


def told(skipped: Mapping[str, int]) -> str:
    """For people; empty when nothing was left out."""
    return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(skipped.items()))
