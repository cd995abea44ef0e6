"""A run of TRL's trainer in a process of its own, as its user would start it; prints one line of JSON.

    python -m benchmarks.trl_run FOLDER SEED STEPS THREADS TARGET LIMIT_S [MICRO_BATCH]

FOLDER is a model folder to start from. Every `EVAL_EVERY` steps held-out accuracy is measured by our engine on the same
tasks and draws as ours; times of the curve are with evaluations, `train_s` is without. Ends at STEPS, TARGET accuracy
(above 1: never) or LIMIT_S seconds. MICRO_BATCH: completions of one forward pass; without it all of a step.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks import trl_peer
from benchmarks.process_memory import resident_bytes
from benchmarks.start import Start, warm_started
from farflung.model.folder import load_folder

EVAL_EVERY = 10


class Watch(transformers.TrainerCallback):
    """Times steps without evaluations, samples memory, and stops the run."""

    def __init__(self, start: Start, model: Any, target: float, limit_s: float) -> None:
        self.start, self.model, self.target, self.limit_s = start, model, target, limit_s
        self.engine = start.engine() if target <= 1 else None
        self.excluded_s = 0.0
        self.began_s = self.began_cpu_s = 0.0
        self.curve: list[tuple[int, float, float]] = []
        """(step, seconds since the start, evaluations among them, accuracy)."""
        self.memory: list[int] = []
        """Resident bytes after each step."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began_s, self.began_cpu_s = time.monotonic(), time.process_time()

    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        now_s = time.monotonic()
        self.memory.append(resident_bytes())
        if self.engine is not None and state.global_step % EVAL_EVERY == 0:
            weights = {name: tensor.detach() for name, tensor in self.model.state_dict().items()}
            accuracy = self.start.accuracy(weights, self.engine)
            after_s = time.monotonic()
            self.curve.append((state.global_step, after_s - self.began_s, accuracy))
            self.excluded_s += after_s - now_s
            control.should_training_stop = accuracy >= self.target
        if time.monotonic() - self.began_s > self.limit_s:
            control.should_training_stop = True


def main(
    folder: Path, seed: int, num_steps: int, num_threads: int, target: float, limit_s: float, micro_batch: int = 0
) -> dict[str, Any]:
    torch.set_num_threads(num_threads)
    start = warm_started(seed)
    num_completions = start.num_groups * start.group_size
    state = load_folder(folder).state
    with tempfile.TemporaryDirectory(prefix="farflung-bench-") as scratch:
        trainer = trl_peer.grpo_trainer(
            start.description,
            state,
            start.environment,
            start.optimizer,
            folder=Path(scratch),
            num_completions=micro_batch or num_completions,
            gradient_accumulation_steps=num_completions // (micro_batch or num_completions),
            max_completion_tokens=start.sampling.max_completion_tokens,
            max_steps=start.max_versions,
            indices=range(start.num_groups * num_steps),
        )
        watch = Watch(start, trainer.model, target, limit_s)
        trainer.add_callback(watch)
        trainer.args.max_steps = num_steps
        trainer.train()
        return {
            "curve": watch.curve,
            "memory": watch.memory,
            "num_steps": trainer.state.global_step,
            "train_s": time.monotonic() - watch.began_s - watch.excluded_s,
            "cpu_s": time.process_time() - watch.began_cpu_s,
        }


if __name__ == "__main__":
    folder, seed, num_steps, num_threads, target, limit_s, *micro_batch = sys.argv[1:]
    report = main(
        Path(folder),
        int(seed),
        int(num_steps),
        int(num_threads),
        float(target),
        float(limit_s),
        *(int(size) for size in micro_batch),
    )
    print(json.dumps(report))
