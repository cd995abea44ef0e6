"""What a model that was never trained on them makes of the shipped environments: SmolLM2-135M-Instruct.

    FARFLUNG_BENCH_SMOLLM2=MODEL python -m benchmarks.env_baselines [NAME ...]

baseline/<environment>      share of right samples at temperature 1, 32 held-out tasks with 2 samples each

Of `take-away`, both sides of each game. By `farflung eval`, with room for what the task asks for and some talk. The
tiny model's baselines are its accuracies after the warm start (`learning_curves`): before it, it has never seen an
answer.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.record import record
from benchmarks.smollm2 import PATH, smollm2

NUM_TASKS, NUM_SAMPLES = 32, 2
MAX_TOKENS = {
    "sort-digits": 48,
    "mod-sum": 64,
    "arithmetic": 48,
    "long-addition": 48,
    "reverse-text": 48,
    "countdown": 64,
    "latin-square": 64,
    "grid-walk": 64,
    "find-formula": 64,
    "trading": 48,
    "take-away": 64,
    "guess-letter": 64,
    "gsm8k-100": 256,
    "humaneval": 256,
    "dataset": 128,
}
"""`dataset` is of the programs in examples/code, graded in the sandbox."""
PROGRAMS = Path(__file__).parents[1] / "examples" / "code" / "programs.jsonl"
FARFLUNG = (sys.executable, "-m", "farflung.cli.main")


def measure(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*FARFLUNG, "eval", str(PATH), "--env", name, "--tasks", str(NUM_TASKS), "--samples", str(NUM_SAMPLES),
             "--max-tokens", str(MAX_TOKENS[name]), "--out", f"{folder}/eval", "--json", *_more(name, folder)],
            check=True, stdout=subprocess.PIPE,
        )  # fmt: skip
    found = json.loads(done.stdout)
    accuracy = found[f"avg@{NUM_SAMPLES}"]["value"]
    detail = {"tasks": NUM_TASKS, "samples": NUM_SAMPLES, "max tokens": MAX_TOKENS[name], "result": found}
    record(f"baseline/{name}", accuracy, None, None, "share of samples", detail)
    print(f"{name}: {accuracy:.3f}", flush=True)


def _more(name: str, folder: str) -> list[str]:
    if name != "dataset":
        return []
    command = [
        *FARFLUNG,
        "data",
        "import",
        "mbpp",
        str(PROGRAMS),
        "--out",
        f"{folder}/tasks",
        "--licence",
        "apache-2.0",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [f"--env.path={folder}/tasks", "--split", "train"]


def main() -> None:
    smollm2()
    for name in sys.argv[1:] or MAX_TOKENS:
        measure(name)


if __name__ == "__main__":
    main()
