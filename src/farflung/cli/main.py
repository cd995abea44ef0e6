"""`farflung`: reads the command line, runs one command, and turns whatever goes wrong into a sentence."""

import logging
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from farflung.cli.arguments import build_parser, split_settings
from farflung.cli.boundary import Ending, classify
from farflung.cli.shipped import resolve_config, shipped_names, shipped_path
from farflung.supervisor.last_words import SENTENCE_PREFIX

logger = logging.getLogger(__name__)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. `SystemExit` only for `--help` and `--version`."""
    try:
        plain, settings = split_settings(sys.argv[1:] if words is None else words)
        return _run(build_parser(version("farflung"), shipped_names()).parse_args(plain), settings)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary of the process
        return _tell(classify(error), error)


def _run(arguments: Namespace, settings: list[str]) -> int:
    """Each command imports what it needs: help must be there at once."""
    match arguments.command:
        case "demo":
            return _demo(arguments, settings)
        case "run":
            options = [*_local(arguments), *_relays(arguments)]
            return _launch(resolve_config(arguments.config), [*options, *settings], is_dry=arguments.dry_run)
        case "status":
            from farflung.cli.status import show_status

            return show_status(arguments.url)
        case "audit":
            from farflung.cli.audit import run_audit

            return run_audit(arguments)
        case "verify":
            from farflung.cli.verify import run_verify

            return run_verify(arguments)
        case "calibrate":
            from farflung.cli.calibrate import run_calibrate

            return run_calibrate(arguments)
        case "data":
            from farflung.cli.data.command import run_data

            return run_data(arguments)
        case "rollouts":
            from farflung.cli.rollouts import run_rollouts

            return run_rollouts(arguments)
        case "sft":
            from farflung.cli.sft import run_sft_command

            return run_sft_command(arguments, settings)
        case "relay":
            from farflung.cli.relay import run_relay

            return run_relay(arguments, settings)
        case "weights":
            from farflung.cli.weights.command import run_weights

            return run_weights(arguments)
        case "serve":
            from farflung.cli.serve import run_serve

            return run_serve(arguments, settings)
        case "chat":
            from farflung.cli.chat import run_chat

            return run_chat(arguments)
        case "eval":
            from farflung.cli.evaluate import run_eval

            return run_eval(arguments, settings)
        case "env":
            from farflung.cli.env.command import run_env

            return run_env(arguments, settings)
        case "plot":
            from farflung.cli.plot.command import run_plot

            return run_plot(arguments)
        case "settings":
            from farflung.cli.settings import run_settings

            return run_settings(arguments)
        case "forward":
            from farflung.cli.forward import run_forward

            return run_forward(arguments)
        case "model":
            from farflung.cli.model import run_model

            return run_model(arguments)
        case "grade":
            if arguments.kind == "code":
                from farflung.cli.grade_code import run_grade_code

                return run_grade_code(arguments)
            from farflung.cli.grade import run_grade_math

            return run_grade_math(arguments)
        case "sandbox":
            from farflung.cli.sandbox import run_doctor

            return run_doctor(arguments)
        case _:
            from farflung.cli.roles import run_role

            return run_role(arguments, settings)


def _demo(arguments: Namespace, settings: list[str]) -> int:
    """The shipped demo; a finished one is left alone and the next one gets a number."""
    from farflung.cli.config import RunConfig
    from farflung.cli.launch import folder_of, is_finished
    from farflung.config.load import load

    path = shipped_path("demo")
    name = "demo-local" if arguments.local else "demo"
    if arguments.seed is not None:
        settings = [f"--run.seed={arguments.seed}", f"--run.name={name}-{arguments.seed}", *settings]
    elif arguments.local:
        settings = [f"--run.name={name}", *settings]
    settings = [*_local(arguments), *settings]
    if arguments.name is not None:
        return _launch(path, [*settings, f"--run.name={arguments.name}"], is_dry=arguments.dry_run)
    config = load(RunConfig, path, settings).config
    name, number = config.run.name, 1
    while is_finished(folder_of(config), config.trainer.max_versions):
        number += 1
        config = load(RunConfig, path, [*settings, f"--run.name={name}-run{number}"]).config
    return _launch(path, [*settings, f"--run.name={config.run.name}"], is_dry=arguments.dry_run)


def _relays(arguments: Namespace) -> list[str]:
    return [] if arguments.relays is None else [f"--supervisor.num_relays={arguments.relays}"]


def _local(arguments: Namespace) -> list[str]:
    """`--local` is a setting: a run is continued as it was started."""
    return ["--run.local=true"] if arguments.local else []


def _launch(path: Path, settings: list[str], *, is_dry: bool) -> int:
    from farflung.cli.config import RunConfig
    from farflung.cli.launch import dry_run, launch
    from farflung.config.load import load

    loaded = load(RunConfig, path, settings)
    return dry_run(loaded) if is_dry else launch(loaded)


def _tell(ending: Ending, error: BaseException) -> int:
    """Print the sentence; a bug's traceback goes to the log, whose path is told."""
    sentence = ending.sentence
    if ending.is_bug:
        sentence = f"{sentence}; the details are in {_keep_traceback(error)}"
    sys.stderr.write(f"{SENTENCE_PREFIX}{sentence}\n")
    return ending.exit_code


def _keep_traceback(error: BaseException) -> str:
    """Where the traceback was written: this process's log file if it has one, else a file of its own."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            logger.critical("unexpected end", exc_info=error)
            return handler.baseFilename
    with tempfile.NamedTemporaryFile("w", prefix="farflung-", suffix=".log", delete=False) as file:
        file.writelines(traceback.format_exception(error))
    return file.name


if __name__ == "__main__":
    sys.exit(main())
