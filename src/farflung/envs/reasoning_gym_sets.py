"""Which data sets of reasoning-gym can be used with answers of strangers, and how one is opened.

The library is an optional dependency that takes a second to import; it is imported on first use only. Its scorers are
written for a friendly model in a trusted process. `REFUSED` lists those that are not safe or not exact there, found by
reading and probing every scorer of version 0.1.25: it shrinks when answers are scored in a sandbox, or when they are
mended upstream. This module does not know tasks or splits.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from farflung.errors import UserError
from farflung.wire.pool import EnvArg

RUNS_TEXT = "its scorer evaluates the answer as Python code (eval, or sympy's parse_expr)"
HANGS = "a short answer can make its scorer run or allocate without end"
FOOLED = "its scorer pays in full for answers that are wrong"
NOT_REPRODUCIBLE = "its tasks differ from process to process, so nobody could check them"
MIXED = "it mixes other data sets, also those that are refused"

REFUSED: Mapping[str, str] = {
    "binary_matrix": RUNS_TEXT,
    "countdown": RUNS_TEXT,
    "intermediate_integration": RUNS_TEXT,
    "n_queens": RUNS_TEXT,
    "polynomial_multiplication": RUNS_TEXT,
    "puzzle24": RUNS_TEXT,
    "simple_integration": RUNS_TEXT,
    "spiral_matrix": RUNS_TEXT,
    "string_insertion": RUNS_TEXT,
    "codeio": f"{HANGS} (distance of nested JSON)",
    "coin_flip": f"{HANGS} (1e99999999 as a fraction)",
    "propositional_logic": f"{HANGS} (truth table over 26 invented variables)",
    "rubiks_cube": f"{HANGS} (R99999999)",
    "rush_hour": f"{HANGS} (A+999999999999)",
    "complex_arithmetic": f"{FOOLED} (nan)",
    "game_of_life_halting": f"{FOOLED} (any text is right where True is)",
    "number_sorting": f"{FOOLED} (a list of NaN)",
    "isomorphic_strings": NOT_REPRODUCIBLE,
    "knight_swap": NOT_REPRODUCIBLE,
    "list_functions": NOT_REPRODUCIBLE,
    "ransom_note": NOT_REPRODUCIBLE,
    "word_ladder": NOT_REPRODUCIBLE,
    "composite": MIXED,
}

RESERVED_FIELDS = {
    "seed": "the environment's own seed sets it",
    "size": "num_tasks and num_heldout_tasks set it",
}


def check_dataset(name: str, args: Mapping[str, EnvArg], own: frozenset[str]) -> None:
    """Refuse what cannot be opened before anything is built.

    Args:
        name: of the data set.
        args: for the data set, without the adapter's.
        own: names of the adapter's arguments, for suggestions.

    Raises:
        UserError: the library is missing, the data set is unknown or refused, or it has no such argument.
    """
    known = _registered()
    if name not in known:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        usable = ", ".join(sorted(set(known) - set(REFUSED)))
        raise UserError(f'reasoning-gym has no data set "{name}"; {meant}it has {usable}')
    if name in REFUSED:
        raise UserError(f"reasoning-gym:{name} is refused: {REFUSED[name]}; choose another data set")
    _, config_type = known[name]
    fields = {field.name for field in dataclasses.fields(config_type)} - set(RESERVED_FIELDS)
    for argument in args:
        if argument in RESERVED_FIELDS:
            raise UserError(f"reasoning-gym:{name} takes no argument {argument}: {RESERVED_FIELDS[argument]}")
        if argument not in fields:
            choices = sorted(fields | own)
            close = difflib.get_close_matches(argument, choices, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(choices)}"
            raise UserError(f"reasoning-gym:{name} has no argument {argument}; {hint}")


def categories() -> dict[str, list[str]]:
    """Category -> its data sets, both in alphabetical order; the library sorts data sets into subpackages.

    Raises:
        UserError: the library is missing.
    """
    found: dict[str, list[str]] = {}
    for name, (dataset, _) in sorted(_registered().items()):
        found.setdefault(dataset.__module__.split(".")[1], []).append(name)
    return dict(sorted(found.items()))


def open_dataset(name: str, seed: int, size: int, args: Mapping[str, EnvArg]) -> Any:
    """A `ProceduralDataset`: `dataset[index] -> {"question", "answer", "metadata"}` and `score_answer(answer, entry)`.

    Raises:
        UserError: the data set's own checks refuse the arguments.
    """
    dataset_type, config_type = _registered()[name]
    try:
        return dataset_type(config_type(seed=seed, size=size, **args))
    except (AssertionError, ValueError, TypeError) as error:
        shown = ", ".join(f"{key} = {value!r}" for key, value in args.items()) or "default arguments"
        reason = str(error) or type(error).__name__
        raise UserError(f"reasoning-gym:{name} refuses {shown}, size {size}: {reason}; change what it names") from error


def _registered() -> Mapping[str, tuple[Any, Any]]:
    """Data set name -> (data set class, config class)."""
    try:
        import reasoning_gym  # noqa: F401 - optional and slow; importing it fills the registry
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        if error.name != "reasoning_gym":
            raise
        raise UserError("reasoning-gym is not installed; pip install 'farflung[reasoning-gym]'") from error
    registered: Mapping[str, tuple[Any, Any]] = DATASETS
    return registered
