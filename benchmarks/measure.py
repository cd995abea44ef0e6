"""CPU time of alternating rounds, the machine's matrix product limit, and where operators spend their time.

CPU time of this process, not wall time: other processes may share the cores.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

PROFILE_RUNS = 5
PROJECTIONS = {"mm", "addmm", "mkldnn::_linear_pointwise"}
ATTENTION = {"bmm", "baddbmm", "_softmax", "_scaled_dot_product_flash_attention_for_cpu"}


def cpu_time(function: Callable[[], Any], repeats: int = 1) -> float:
    """CPU-seconds of `repeats` calls."""
    started_s = time.process_time()
    for _ in range(repeats):
        function()
    return time.process_time() - started_s


def alternate(ours: Callable[[], Any], peer: Callable[[], Any], *, rounds: int, repeats: int) -> tuple[float, float]:
    """Median CPU-seconds of one call of each; the first round of both is a warm-up."""
    ours(), peer()
    times = [(cpu_time(ours, repeats) / repeats, cpu_time(peer, repeats) / repeats) for _ in range(rounds)]
    return statistics.median(time[0] for time in times), statistics.median(time[1] for time in times)


def matmul_flops_per_s() -> float:
    """Best single-thread float32 rate of a product that fits the caches."""
    a, b, out = torch.randn(256, 256), torch.randn(256, 256), torch.empty(256, 256)
    repeats = 20
    return repeats * 2 * 256**3 / min(cpu_time(lambda: torch.mm(a, b, out=out), repeats) for _ in range(20))


def profile_shares(
    function: Callable[[], Any], *, num_steps: int, num_top: int = 6, num_runs: int = PROFILE_RUNS
) -> dict[str, str]:
    """What a call is bound by: shares of the operators' own CPU time, each operator's least over a few runs."""
    runs = [_self_times(function) for _ in range(num_runs)]
    times = {name: min(run.get(name, (0.0, 0))[0] for run in runs) for name in runs[0]}
    num_calls = sum(count for _, count in runs[0].values())
    ordered = sorted(times, key=lambda name: -times[name])
    return {
        "projections": _share(times, PROJECTIONS),
        "attention": _share(times, ATTENTION),
        "small_kernels": _share(times, times.keys() - PROJECTIONS - ATTENTION),
        "operators_per_step": f"{num_calls / num_steps:.0f}",
        "top": ", ".join(f"{name} {_share(times, {name})}" for name in ordered[:num_top]),
    }


def _self_times(function: Callable[[], Any]) -> dict[str, tuple[float, int]]:
    """Own CPU time (us) and number of calls of every operator of one call."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        function()
    return {row.key.removeprefix("aten::"): (row.self_cpu_time_total, row.count) for row in profiler.key_averages()}


def _share(times: Mapping[str, float], names: set[str]) -> str:
    return f"{sum(times[name] for name in names if name in times) / sum(times.values()):.0%}"
