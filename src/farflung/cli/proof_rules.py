"""Thresholds of proofs, as `farflung calibrate` writes them."""

import json
from pathlib import Path

import msgspec

from farflung.errors import UserError
from farflung.wire.proof import ProofRules


def read_proof_rules(path: Path) -> ProofRules:
    """From a file that `farflung calibrate` wrote.

    Raises:
        UserError: there is none, or it is something else.
    """
    try:
        return msgspec.convert(json.loads(path.read_bytes())["rules"], type=ProofRules)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a file of `farflung calibrate`: {error}") from error
