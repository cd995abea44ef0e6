"""`farflung weights diff`."""

from argparse import Namespace

from farflung.errors import UserError


def run_diff(arguments: Namespace) -> int:
    raise UserError(f"farflung weights diff {arguments} is not written yet")
