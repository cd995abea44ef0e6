"""Arguments of an environment on the command line: `--env.KEY VALUE`."""

import json
from collections.abc import Sequence

from farflung.errors import UserError
from farflung.wire.pool import EnvArg


def parse_env_args(settings: Sequence[str], command: str) -> dict[str, EnvArg]:
    """Numbers and true/false as such, everything else as text. Raises `UserError` for other settings."""
    args: dict[str, EnvArg] = {}
    rest = list(settings)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--env."):
            raise UserError(
                f"{name} is no setting of {command}: arguments of the environment are written --env.KEY VALUE"
            )
        if not equals:
            if not rest:
                raise UserError(f"{name} has no value")
            value = rest.pop(0)
        args[name.removeprefix("--env.")] = _value(value)
    return args


def _value(text: str) -> EnvArg:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text
