"""`farflung weights inspect`."""

from argparse import Namespace

from farflung.errors import UserError


def run_inspect(arguments: Namespace) -> int:
    raise UserError(f"farflung weights inspect {arguments} is not written yet")
