"""What is alive while the trainer steps: as much after many micro-batches and steps as after a few."""

import gc
import resource
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from farflung.rl.loss import LossInputs, LossOutputs
from farflung.rl.objectives import Objective
from farflung.rl.samples import training_samples
from farflung.rl.types import TrainingSample
from farflung.trainer.step import train_step, train_version
from tiny_pool import pool_spec, sampled_groups, step_params, tiny_policy


class Kept:
    """A tensor that a graph keeps for its backward pass."""

    num_bytes = 0

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        Kept.num_bytes += tensor.nbytes

    def __del__(self) -> None:
        Kept.num_bytes -= self.tensor.nbytes


def samples(num_slots: int) -> list[TrainingSample]:
    policy = tiny_policy()
    groups = [group for slot in range(num_slots) for group in sampled_groups(policy, pool_spec(), slot=slot)]
    return training_samples(groups)


def test_the_graph_of_the_fiftieth_micro_batch_is_as_large_as_that_of_the_fifth() -> None:
    """M1: graphs hold what they saved for the backward pass; none outlives its micro-batch."""
    alive: list[int] = []
    inner = step_params(micro_batch_tokens=5)

    def watching(inputs: LossInputs, params: object, num_loss_tokens: int) -> LossOutputs:
        alive.append(Kept.num_bytes)
        return inner.objective.function(inputs, params, num_loss_tokens)

    objective = Objective(function=watching, params=inner.objective.params)
    batch = [sample for sample in samples(6) if sample.num_forward_tokens == 5] * 4
    params = replace(inner, objective=objective)
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        train_step(tiny_policy(), batch, params, 1e-3)
    assert len(alive) == len(batch) > 50
    assert alive[4] > 10_000
    assert set(alive[4:]) == {alive[4]}
    assert Kept.num_bytes == 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def live_tensor_bytes() -> int:
    gc.collect()
    return sum(each.nbytes for each in gc.get_objects() if type(each) in (Tensor, torch.nn.Parameter))


def num_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_memory_does_not_grow_with_steps() -> None:
    """M2, of the training step alone: a step that left behind one object, or 64 KiB in C++, would be noticed."""
    policy, batch, params = tiny_policy(), samples(1), step_params()

    def steps(first: int, last: int) -> None:
        for number in range(first, last):
            train_version(policy, batch, params, lambda _: 1e-4, num_steps=2, seed=number)

    steps(0, 50)
    objects, tensor_bytes, resident = num_objects(), live_tensor_bytes(), resident_bytes()
    steps(50, 200)
    assert num_objects() - objects < 75
    assert live_tensor_bytes() == tensor_bytes
    assert resident_bytes() - resident < 150 * (64 << 10)
