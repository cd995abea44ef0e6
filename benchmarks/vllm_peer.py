"""vLLM's CPU build as a child process in its own environment, which `vllm_venv.sh` makes."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.process_cpu import tree_cpu_s

FOLDER = Path(os.environ.get("FARFLUNG_BENCH_VLLM", Path(__file__).with_name(".cache") / "vllm"))
MAKE = f"sh {Path(__file__).with_name('vllm_venv.sh')}"


def is_there() -> bool:
    """Whether its environment has been made."""
    return (FOLDER / "bin/python").exists()


class Vllm:
    """One loaded model; use as a context manager."""

    def __init__(self, model: Path, *, max_rows: int, max_tokens: int, log: Path) -> None:
        """Args: log: where everything that vLLM says goes."""
        command = [FOLDER / "bin/python", Path(__file__).with_name("vllm_child.py"), model, max_rows, max_tokens]
        with log.open("wb") as file:
            self._child = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )
        first = self._line()
        if not first:
            self.__exit__()
            raise RuntimeError(f"vLLM did not start: {log.read_text(errors='replace')[-2000:]}")
        self.version = f"vllm {json.loads(first)['version']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child.terminate()
        self._child.wait()

    @property
    def cpu_s(self) -> float:
        """CPU time of its whole process tree so far."""
        return tree_cpu_s(self._child.pid)

    def generate(
        self, prompts: Sequence[Sequence[int]], *, num_samples: int, num_new: int, greedy: bool = False
    ) -> dict[str, Any]:
        """`num_tokens` drawn with logprobs, and the `first` completion's ids."""
        request = {
            "prompts": [list(map(int, prompt)) for prompt in prompts],
            "num_samples": num_samples,
            "num_new": num_new,
            "greedy": greedy,
        }
        if self._child.stdin is None:
            raise RuntimeError("the child has no pipe")
        self._child.stdin.write(json.dumps(request).encode() + b"\n")
        self._child.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> bytes:
        if self._child.stdout is None:
            raise RuntimeError("the child has no pipe")
        return self._child.stdout.readline()
