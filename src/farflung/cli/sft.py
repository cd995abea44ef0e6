"""`farflung sft MODEL DATA`: supervised fine-tuning of a model folder."""

import signal
import sys
import threading
from argparse import Namespace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from farflung.cli.boundary import EXIT_INTERRUPTED
from farflung.config.base import Config
from farflung.config.load import load
from farflung.errors import UserError
from farflung.trainer.sft.config import SftConfig


class SftSettings(Config):
    """What `--sft.key` sets."""

    sft: SftConfig = SftConfig()


def run_sft_command(arguments: Namespace, settings: list[str]) -> int:
    """Train, with a bar; Ctrl-C saves and leaves, the same command goes on."""
    from farflung.model.folder import load_folder
    from farflung.model.tokenizer import Tokenizer
    from farflung.trainer.sft.data import read_examples
    from farflung.trainer.sft.encode import encode_examples, told
    from farflung.trainer.sft.run import MODEL_FOLDER, Measured, run_sft

    config = load(SftSettings, None, settings).config.sft
    if config.max_tokens > config.micro_batch_tokens:
        raise UserError(
            f"sft.max_tokens is {config.max_tokens} with sft.micro_batch_tokens {config.micro_batch_tokens}: "
            "an example must fit into one forward pass; raise the second or lower the first"
        )
    out = Path(arguments.out)
    examples = read_examples(Path(arguments.data))
    model = load_folder(Path(arguments.model))
    samples, skipped = encode_examples(
        examples, Tokenizer.from_files(model.tokenizer_files), max_tokens=config.max_tokens
    )
    sys.stdout.write(f"{len(samples)} examples" + (f"; left out: {told(skipped)}" if skipped else "") + "\n")
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    try:
        with Progress(*columns, console=Console(file=sys.stderr)) as progress:
            bar = progress.add_task("steps", total=None, figures="")

            def report(measured: Measured) -> None:
                figures = f"loss {measured.loss:.4f}"
                if measured.heldout_loss is not None:
                    figures += f", held out {measured.heldout_loss:.4f}"
                    progress.console.print(f"step {measured.step}: {figures}", highlight=False)
                progress.update(bar, total=measured.num_steps, completed=measured.step, figures=figures)

            ended = run_sft(model, samples, config, out, report=report, should_stop=stop.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
    sys.stdout.write(f"step {ended.step}: the model is {out / MODEL_FOLDER}\n")
    return EXIT_INTERRUPTED if stop.is_set() else 0
