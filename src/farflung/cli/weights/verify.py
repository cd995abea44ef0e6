"""`farflung weights verify`."""

from argparse import Namespace

from farflung.errors import UserError


def run_verify(arguments: Namespace) -> int:
    raise UserError(f"farflung weights verify {arguments} is not written yet")
