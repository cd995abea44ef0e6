"""`farflung env ACTION`: each action imports what it needs."""

from argparse import Namespace

from farflung.errors import UserError


def run_env(arguments: Namespace, settings: list[str]) -> int:
    """Returns the exit code."""
    if settings and arguments.action not in ("show", "try", "test"):
        raise UserError(f"{settings[0]}: `farflung env {arguments.action}` takes no settings")
    match arguments.action:
        case "new":
            from farflung.cli.env.new import run_new

            return run_new(arguments)
        case "list":
            from farflung.cli.env.listing import run_list

            return run_list(arguments)
        case "show":
            from farflung.cli.env.show import run_show

            return run_show(arguments, settings)
        case "try":
            from farflung.cli.env.attempt import run_try

            return run_try(arguments, settings)
        case "test":
            from farflung.cli.env.check import run_test

            return run_test(arguments, settings)
        case "publish":
            from farflung.cli.env.exchange import run_publish

            return run_publish(arguments)
        case "install":
            from farflung.cli.env.exchange import run_install

            return run_install(arguments)
        case _:
            from farflung.cli.env.exchange import run_remove

            return run_remove(arguments)
