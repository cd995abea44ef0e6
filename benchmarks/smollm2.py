"""SmolLM2-135M-Instruct for benchmarks: a model folder, written once from the package that ships it."""

import os
from functools import cache
from pathlib import Path

from farflung.cli.main import main
from farflung.model.folder import LoadedModel, load_folder

PATH = Path(os.environ.get("FARFLUNG_BENCH_SMOLLM2", Path(__file__).with_name(".cache") / "smollm2-135m-instruct"))


@cache
def smollm2() -> LoadedModel:
    """Config, bfloat16 state and tokenizer files."""
    if not PATH.exists():
        main(["model", "import", "smollm2-135m-instruct", str(PATH)])
    return load_folder(PATH)
