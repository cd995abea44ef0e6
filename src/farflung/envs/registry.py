"""Environments by name.

    built in                       sort-digits, mod-sum, long-addition, arithmetic, reverse-text, instructions,
                                   countdown, latin-square, grid-walk, find-formula, trading
    of several turns               take-away (self-play), guess-letter
    mixture                        several of the others, each with its share of the tasks (`envs.mixture`)
    budgeted:<environment>         any of the others with thinking budgets (`envs.budgeted`)
    gsm8k-100, humaneval           published test sets, for evaluation alone (`envs.bundled`)
    reasoning-gym:<data set>       any data set of that library that can be graded safely (`envs.reasoning_gym`)
    reasoning-gym:<category>/all   all of a category (`envs.reasoning_gym_suite`)
    verifiers:<environment>        an installed environment of Prime's library (`envs.verifiers_adapter`)
    anything else                  an entry point in the group `farflung.environments` of what the operator installed
                                   himself (`pip install`): in this process
                                   a package of `farflung env install`: in a child behind walls (`envs.guest`), or in
                                   this process where the operator agreed to its digest

A name never makes this process import a module that the operator has not installed as an environment: pool rules come
from elsewhere. This module does not know what an environment does.
"""

import difflib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from farflung.envs import reasoning_gym
from farflung.envs.arithmetic import Arithmetic
from farflung.envs.base import Environment, EnvironmentFactory, graders_of
from farflung.envs.budgeted import PREFIX as BUDGETED
from farflung.envs.budgeted import Budgeted
from farflung.envs.countdown import Countdown
from farflung.envs.dataset import Dataset
from farflung.envs.episode import num_agents_of
from farflung.envs.find_formula import FindFormula
from farflung.envs.graders.registry import require_ready
from farflung.envs.grid_walk import GridWalk
from farflung.envs.gsm8k import Gsm8k
from farflung.envs.guess_letter import GuessLetter
from farflung.envs.guest.environment import load_guest
from farflung.envs.guest.process import GuestSource, NoWalls
from farflung.envs.humaneval import HumanEval
from farflung.envs.instructions import Instructions
from farflung.envs.latin_square import LatinSquare
from farflung.envs.long_addition import LongAddition
from farflung.envs.mixture import Mixture
from farflung.envs.mod_sum import ModSum
from farflung.envs.packages.agreed import agreed_factory
from farflung.envs.packages.home import Home, Installed, default_folder
from farflung.envs.reasoning_gym_suite import SUFFIX, ReasoningGymSuite
from farflung.envs.reverse_text import ReverseText
from farflung.envs.sort_digits import SortDigits
from farflung.envs.sources import differences, sources_of
from farflung.envs.take_away import TakeAway
from farflung.envs.trading import Trading
from farflung.envs.verifiers_adapter.environment import PREFIX as VERIFIERS
from farflung.envs.verifiers_adapter.environment import load_verifiers
from farflung.errors import UserError
from farflung.wire.pool import EnvArg, EnvironmentSpec

ENTRY_POINT_GROUP = "farflung.environments"

BUILT_IN: Mapping[str, EnvironmentFactory] = {
    SortDigits.name: SortDigits,
    ModSum.name: ModSum,
    LongAddition.name: LongAddition,
    Arithmetic.name: Arithmetic,
    ReverseText.name: ReverseText,
    Countdown.name: Countdown,
    Dataset.name: Dataset,
    FindFormula.name: FindFormula,
    GridWalk.name: GridWalk,
    LatinSquare.name: LatinSquare,
    Trading.name: Trading,
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
    if name.startswith(BUDGETED):
        return Budgeted(name.removeprefix(BUDGETED), seed, args, load_environment)
    if name.startswith(reasoning_gym.PREFIX) and name.endswith(SUFFIX):
        category = name.removeprefix(reasoning_gym.PREFIX).removesuffix(SUFFIX)
        return ReasoningGymSuite(category, seed, args, load_environment)
    if name.startswith(reasoning_gym.PREFIX):
        return reasoning_gym.ReasoningGym(name.removeprefix(reasoning_gym.PREFIX), seed, args)
    if name.startswith(VERIFIERS):
        return load_verifiers(name.removeprefix(VERIFIERS), seed, args)
    installed = entry_point_names()
    if name in installed:
        factory: EnvironmentFactory = installed[name].load()
        return factory(seed, args)
    home = home_folder()
    package = home.find(name) if home else None
    if home is not None and package is not None:
        return load_package(home, package, name, seed, args)
    packaged = [each for package in home.lock().packages for each in package.environments] if home else []
    raise UserError(_unknown(name, [*BUILT_IN, Mixture.name, *installed, *packaged]))


def load_package(home: Home, package: Installed, name: str, seed: int, args: Mapping[str, EnvArg]) -> Environment:
    """An environment of an installed package: behind walls, unless the operator agreed to its digest.

    Raises:
        UserError: its files have changed, nothing can be shut in here, or a wrong argument.
        OurFault: it cannot be loaded within its limits.
    """
    folder, reference = home.source_of(package), package.environments[name]
    environment: Environment
    if package.is_agreed:
        environment = agreed_factory(folder, reference)(seed, args)
    else:
        try:
            environment = load_guest(GuestSource(folder=folder, reference=reference, seed=seed, args=args))
        except NoWalls as error:
            raise UserError(
                f"environment {name} comes from others, and {error}; or read {home.files_of(package)}, and if it may "
                f"do what you may: farflung env install {package.name} --index {package.index} --trust {package.digest}"
            ) from error
    if environment.name != name:
        raise UserError(
            f"{reference} of {package.name} calls itself {environment.name!r}, not {name}: a faulty package"
        )
    return environment


def home_folder() -> Home | None:
    """Installed packages of this user."""
    folder = default_folder()
    return Home(folder) if folder is not None else None


def names_taken() -> list[str]:
    """Names that no package may have, or come close to."""
    return [*BUILT_IN, Mixture.name, *entry_point_names()]


def package_digest_of(name: str) -> str:
    """Digest of the installed package that an environment is from; "" for one that is built in or of `pip install`."""
    home, name = home_folder(), name.removeprefix(BUDGETED)
    if home is None or name in (*BUILT_IN, Mixture.name) or name in entry_point_names():
        return ""
    package = home.find(name)
    return package.digest if package else ""


def sources_here(name: str, args: Mapping[str, EnvArg]) -> dict[str, str]:
    """What this machine makes the tasks of an environment from (`envs.sources`). Raises `UserError` for its members."""
    return sources_of(name, args, entry_point_names(), package_digest_of)


def load_for_pool(spec: EnvironmentSpec) -> Environment:
    """The environment that a pool's rules name, of the very package that they name.

    Raises:
        UserError: as `load_environment`, or another package has an environment of this name here.
    """
    here = package_digest_of(spec.name)
    if here != spec.package:
        named, found = (f"package {digest}" if digest else "none of a package" for digest in (spec.package, here))
        fix = (
            f", for example with farflung env install NAME --index URL --digest {spec.package}" if spec.package else ""
        )
        raise UserError(
            f"environment {spec.name} of the pool's rules is {named}, and here it is {found}: install what the pool "
            f"was made with{fix}"
        )
    if spec.sources and (others := differences(spec.sources, sources_here(spec.name, spec.args))):
        raise UserError(
            f"environment {spec.name} of the pool's rules comes from elsewhere: {'; '.join(others)}: install what the "
            "pool was made with"
        )
    return load_environment(spec.name, spec.seed, spec.args)


def load_for_grading(spec: EnvironmentSpec) -> Environment:
    """The environment of a pool, for whoever decides what completions are worth.

    Raises:
        UserError: as `load_for_pool`; or the pool's rules name a grader, or a version of one, that is not here, that
            this environment does not use, or that lacks something on this machine.
    """
    environment = load_for_pool(spec)
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


def entry_point_names() -> dict[str, EntryPoint]:
    """Environments of installed distributions, by name."""
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def _unknown(name: str, known: list[str]) -> str:
    choices = [*known, f"{reasoning_gym.PREFIX}<data set>"]
    close = difflib.get_close_matches(name.lower().replace("_", "-"), choices, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f'unknown environment "{name}"; {meant}known: {", ".join(choices)}'
