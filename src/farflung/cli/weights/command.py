"""`farflung weights inspect|verify|diff|plan`. Each action imports what it needs."""

from argparse import Namespace


def run_weights(arguments: Namespace) -> int:
    """One of the actions; the exit code."""
    match arguments.action:
        case "inspect":
            from farflung.cli.weights.inspect import run_inspect

            return run_inspect(arguments)
        case "verify":
            from farflung.cli.weights.verify import run_verify

            return run_verify(arguments)
        case "plan":
            from farflung.cli.weights.plan import run_plan

            return run_plan(arguments)
        case _:
            from farflung.cli.weights.diff import run_diff

            return run_diff(arguments)
