"""Where the tasks of an environment come from, beside this package: what a pool's rules pin.

    an installed package       package <digest>                 one of `pip install`      <distribution> <version>
    reasoning-gym:...          reasoning-gym <version>          verifiers:...             both library and environment

An environment that is made of others (`mixture`, `budgeted:`, `reasoning-gym:<category>/all`) has the sources of these.
This module knows names and versions, not what an environment does.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, packages_distributions, version

from farflung.envs import reasoning_gym
from farflung.envs.budgeted import OWN
from farflung.envs.budgeted import PREFIX as BUDGETED
from farflung.envs.mixture import MEMBERS, Mixture, member_names
from farflung.envs.verifiers_adapter.environment import PREFIX as VERIFIERS
from farflung.wire.pool import EnvArg


def leaves(name: str, args: Mapping[str, EnvArg]) -> tuple[str, ...]:
    """Names of the environments that `name` is made of, each once; itself if it is not made of others.

    Raises:
        UserError: members of a mixture that will not do.
    """
    if name.startswith(BUDGETED):
        return leaves(
            name.removeprefix(BUDGETED), {key: value for key, value in args.items() if not key.startswith(OWN)}
        )
    if name != Mixture.name:
        return (name,)
    found = dict.fromkeys(
        leaf
        for label, member in member_names(args.get(MEMBERS)).items()
        for leaf in leaves(member, _arguments_of(label, args))
    )
    return tuple(found)


def sources_of(
    name: str, args: Mapping[str, EnvArg], installed: Mapping[str, EntryPoint], digest_of: Callable[[str], str]
) -> dict[str, str]:
    """Environment or library -> what it is on this machine; nothing for what is built in.

    Args:
        installed: environments of installed distributions, by name.
        digest_of: name of an environment -> digest of the package that it is from, "" for none.

    Raises:
        UserError: as `leaves`.
    """
    found: dict[str, str] = {}
    for leaf in leaves(name, args):
        if leaf.startswith(reasoning_gym.PREFIX):
            found["reasoning-gym"] = _release("reasoning-gym")
        elif leaf.startswith(VERIFIERS):
            found["verifiers"] = _release("verifiers")
            found[leaf] = _owner(leaf.rpartition("/")[2].removeprefix(VERIFIERS).replace("-", "_"))
        elif leaf in installed:
            owner = installed[leaf].dist
            found[leaf] = f"{owner.name} {owner.version}" if owner is not None else "no distribution"
        elif digest := digest_of(leaf):
            found[leaf] = f"package {digest}"
    return found


def differences(named: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What a pool's rules pin and is something else here, a part of a sentence each."""
    return [
        f"{name} is {source} there and {here.get(name, 'absent')} here"
        for name, source in sorted(named.items())
        if here.get(name) != source
    ]


def _arguments_of(label: str, args: Mapping[str, EnvArg]) -> dict[str, EnvArg]:
    own = f"{label}."
    return {key.removeprefix(own): value for key, value in args.items() if key.startswith(own)}


def _release(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return "absent"


def _owner(module: str) -> str:
    owners = packages_distributions().get(module, ())
    return ", ".join(sorted({_release(owner) for owner in owners})) or "absent"
