"""Checks of tasks: the same everywhere, no prompt in both splits, indices, characters, tokens."""

from farflung.envs.base import Environment
from farflung.envs.checks.episodes import sampled, shown, sizes
from farflung.envs.checks.fingerprint import HASH_SEEDS, Fingerprint
from farflung.envs.checks.report import Check, failed, left_out, passed
from farflung.envs.playable import require_playable
from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.tokenizer import Tokenizer
from farflung.wire.task import Task

MAX_COMPARED = 2000
"""Prompts of each split that are compared."""
_FAR = 10**12


def check_determinism(pair: tuple[Fingerprint, Fingerprint], *, is_reproducible: bool) -> Check:
    """Two processes, two hash seeds: the same tasks, and the same grades unless they are declared to vary."""
    name, (one, other) = "determinism", pair
    if problem := one.error or other.error:
        return failed(name, problem)
    seeds = f"PYTHONHASHSEED {HASH_SEEDS[0]} and {HASH_SEEDS[1]}"
    if one.tasks != other.tasks:
        return failed(
            name, f"two processes with {seeds} make different tasks: something follows a set, clock or chance"
        )
    if one.grades != other.grades and is_reproducible:
        return failed(name, f"two processes with {seeds} grade differently, and nothing declares that")
    return passed(name, f"two processes with {seeds} agree")


def check_splits(environment: Environment) -> Check:
    """No prompt in both, and no index outside."""
    name = "held-out tasks"
    prompts = [
        {environment.task(split, index).messages for index in range(min(size, MAX_COMPARED))}
        for split, size in sizes(environment)
    ]
    if shared := prompts[0] & prompts[1]:
        return failed(name, f"{len(shared)} prompts are in both splits, such as {_text(next(iter(shared)))!r}")
    if not prompts[1]:
        return failed(name, "there are none: nothing tells learning from memory")
    for split, size in sizes(environment):
        for index in (-1, size, size + _FAR):
            try:
                environment.task(split, index)
            except IndexError:
                continue
            return failed(name, f"task {index} of {split}, which has {size}, is not refused with IndexError")
    return passed(name, f"{len(prompts[0])} prompts of train and {len(prompts[1])} held out, none in both")


def check_template(
    environment: Environment, tokenizer: Tokenizer | None, max_prompt_tokens: int, max_completion_tokens: int
) -> Check:
    """Prompts and demonstrations can be written by the tokenizer, and fit. 0 = any length."""
    name = "template"
    alphabet = environment.alphabet()
    if tokenizer is None and alphabet is None:
        return left_out(name, "no alphabet of its own: give --model for a tokenizer")
    tokenizer = character_tokenizer(alphabet or "") if tokenizer is None else tokenizer
    longest_prompt = longest_answer = 0
    try:
        require_playable(environment, tokenizer, is_replayed=False)  # whether it repeats is another check
        for task in sampled(environment, 100):
            longest_prompt = max(longest_prompt, _num_prompt_tokens(task, tokenizer))
            for turn in shown(environment, task, 0) or ():
                longest_answer = max(longest_answer, len(tokenizer.encode(turn.text)))
    except UserError as error:
        return failed(name, str(error))
    for what, longest, most in (
        ("prompt", longest_prompt, max_prompt_tokens),
        ("demonstrated turn", longest_answer, max_completion_tokens),
    ):
        if most and longest > most:
            return failed(name, f"the longest {what} has {longest} tokens, and {most} fit")
    kind = "characters" if alphabet is not None and not max_prompt_tokens else "tokens"
    return passed(name, f"prompts of at most {longest_prompt} tokens, turns of {longest_answer} ({kind})")


def _num_prompt_tokens(task: Task, tokenizer: Tokenizer) -> int:
    for message in task.messages:
        if (token := tokenizer.special_token_in(message.content)) is not None:
            raise UserError(f"the prompt of {task.task_id} spells the special token {token}")
    return len(tokenizer.encode_chat(task.messages))


def _text(messages: tuple[object, ...]) -> str:
    return str(getattr(messages[-1], "content", ""))[:80]
