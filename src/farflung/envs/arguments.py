"""Arguments of an environment or a grader: plain scalars in a pool's rules, checked against a frozen config.

Wrong ones become one `UserError` with value, rule and fix. This module does not know any environment.
"""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from farflung.config.base import Config
from farflung.config.explain import explain
from farflung.config.reference import Setting, sections
from farflung.errors import UserError
from farflung.wire.pool import EnvArg

C = TypeVar("C", bound=Config)


def parse_arguments(model: type[C], env: str, args: Mapping[str, EnvArg], what: str = "environment") -> C:
    """`args` as a validated `model`; strict: "8" and true are not the number 8.

    Raises:
        UserError: an unknown name (with the closest one) or a value out of its range.
    """
    try:
        return model.model_validate(dict(args), strict=True)
    except ValidationError as error:
        raise UserError(explain(error, model, args, lambda _: f"argument of {what} {env}")) from error


def arguments_of(environment: object) -> tuple[Setting, ...]:
    """What can be set, by its attribute `config`, an instance of a `Config`; empty if it has none."""
    config = getattr(environment, "config", None)
    if not isinstance(config, Config):
        return ()
    return tuple(setting for section in sections(type(config)) for setting in section.settings)
