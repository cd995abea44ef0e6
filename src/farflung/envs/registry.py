"""Environments by name.

    built in                       sort-digits, mod-sum, long-addition, arithmetic, reverse-text, instructions
    of several turns               take-away (self-play), guess-letter
    mixture                        several of the others, each with its share of the tasks (`envs.mixture`)
    gsm8k-100, humaneval           published test sets, for evaluation alone (`envs.bundled`)
    reasoning-gym:<data set>       any data set of that library that can be graded safely (`envs.reasoning_gym`)
    reasoning-gym:<category>/all   all of a category (`envs.reasoning_gym_suite`)
    anything else                  an installed package's entry point in the group `farflung.environments`

A name never makes this process import a module that the operator has not installed as an environment: pool rules come
from elsewhere. This module does not know what an environment does.
"""

import difflib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from farflung.envs import reasoning_gym
from farflung.envs.arithmetic import Arithmetic
from farflung.envs.base import Environment, EnvironmentFactory, graders_of
from farflung.envs.episode import num_agents_of
from farflung.envs.graders.registry import require_ready
from farflung.envs.gsm8k import Gsm8k
from farflung.envs.guess_letter import GuessLetter
from farflung.envs.humaneval import HumanEval
from farflung.envs.instructions import Instructions
from farflung.envs.long_addition import LongAddition
from farflung.envs.mixture import Mixture
from farflung.envs.mod_sum import ModSum
from farflung.envs.reasoning_gym_suite import SUFFIX, ReasoningGymSuite
from farflung.envs.reverse_text import ReverseText
from farflung.envs.sort_digits import SortDigits
from farflung.envs.take_away import TakeAway
from farflung.errors import UserError
from farflung.wire.pool import EnvArg, EnvironmentSpec

ENTRY_POINT_GROUP = "farflung.environments"

BUILT_IN: Mapping[str, EnvironmentFactory] = {
    SortDigits.name: SortDigits,
    ModSum.name: ModSum,
    LongAddition.name: LongAddition,
    Arithmetic.name: Arithmetic,
    ReverseText.name: ReverseText,
    Gsm8k.name: Gsm8k,
    HumanEval.name: HumanEval,
    Instructions.name: Instructions,
    TakeAway.name: TakeAway,
    GuessLetter.name: GuessLetter,
}


def load_environment(name: str, seed: int, args: Mapping[str, EnvArg]) -> Environment:
    """The environment called `name`; the same name, seed and arguments give the same tasks on every machine.

    Raises:
        UserError: unknown name (with the closest and the list), or a wrong argument (with value, rule and fix).
    """
    if name in BUILT_IN:
        return BUILT_IN[name](seed, args)
    if name == Mixture.name:
        return Mixture(seed, args, load_environment)
    if name.startswith(reasoning_gym.PREFIX) and name.endswith(SUFFIX):
        category = name.removeprefix(reasoning_gym.PREFIX).removesuffix(SUFFIX)
        return ReasoningGymSuite(category, seed, args, load_environment)
    if name.startswith(reasoning_gym.PREFIX):
        return reasoning_gym.ReasoningGym(name.removeprefix(reasoning_gym.PREFIX), seed, args)
    installed = _installed()
    if name in installed:
        factory: EnvironmentFactory = installed[name].load()
        return factory(seed, args)
    raise UserError(_unknown(name, [*BUILT_IN, Mixture.name, *installed]))


def load_for_grading(spec: EnvironmentSpec) -> Environment:
    """The environment of a pool, for whoever decides what completions are worth.

    Raises:
        UserError: as `load_environment`; or the pool's rules name a grader, or a version of one, that is not here, that
            this environment does not use, or that lacks something on this machine.
    """
    environment = load_environment(spec.name, spec.seed, spec.args)
    require_ready(spec.graders)
    mine = graders_of(environment)
    if mine != spec.graders:
        named, here = (", ".join(each.label for each in specs) or "none" for specs in (spec.graders, mine))
        raise UserError(
            f"environment {spec.name} grades with {here} here, and the pool's rules say {named}: install the release "
            "that the pool was made with"
        )
    if num_agents_of(environment) != spec.num_agents:
        raise UserError(
            f"environment {spec.name} has {num_agents_of(environment)} agents here, and the pool's rules say "
            f"{spec.num_agents}: install the release that the pool was made with"
        )
    return environment


def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _unknown(name: str, known: list[str]) -> str:
    choices = [*known, f"{reasoning_gym.PREFIX}<data set>"]
    close = difflib.get_close_matches(name.lower().replace("_", "-"), choices, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f'unknown environment "{name}"; {meant}known: {", ".join(choices)}'
