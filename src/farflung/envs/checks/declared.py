"""Checks of what a package says of itself against what it does."""

from farflung.envs.base import Environment, graders_of, is_reproducible
from farflung.envs.checks.fingerprint import Fingerprint
from farflung.envs.checks.report import Check, failed, passed
from farflung.envs.graders.registry import are_reproducible
from farflung.wire.package import PackageManifest, Verifier

_KINDS: dict[str, Verifier] = {"code": "program", "judge": "judge", "judge-pair": "judge"}
_ORDER: tuple[Verifier, ...] = ("function", "rules", "program", "judge")


def verifier_of(environment: Environment) -> Verifier:
    """By its graders; the most demanding of them."""
    kinds = [_KINDS.get(spec.name, "rules") for spec in graders_of(environment)]
    return max(kinds, key=_ORDER.index, default="function")


def repeats(environment: Environment) -> bool:
    """Whether it declares, itself and by its graders, that grades are the same everywhere."""
    return is_reproducible(environment) and are_reproducible(graders_of(environment))


def check_manifest(environment: Environment, manifest: PackageManifest, pair: tuple[Fingerprint, Fingerprint]) -> Check:
    """The manifest's words are true of the environment."""
    name, problems = "manifest", list[str]()
    verifier = verifier_of(environment)
    if environment.name not in {each.name for each in manifest.environments}:
        problems.append(f"it calls itself {environment.name!r}, which is no entry point of the package")
    if verifier != manifest.verifier:
        problems.append(f"verifier is {manifest.verifier}, and it grades by {verifier}")
    if (verifier == "program") != (manifest.sandbox == "code"):
        problems.append(f"sandbox is {manifest.sandbox}, and its verifier is {verifier}")
    agrees = repeats(environment) and pair[0] == pair[1]
    if manifest.is_reproducible and not agrees:
        problems.append("reproducible is true, and it is not")
    if problems:
        return failed(name, "; ".join(problems))
    return passed(name, f"{manifest.name} {manifest.version}, {manifest.licence}, {len(manifest.files)} files")
