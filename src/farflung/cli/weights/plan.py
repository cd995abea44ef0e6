"""`farflung weights plan`: how many workers, and how fast a network, a pool needs (`sharding.provisioning`).

Figures are what the coordinator knows of the pool as it runs, each replaced by an option where one is given; without a
coordinator every figure is an option.
"""

import asyncio
import json
import math
import sys
from argparse import Namespace
from dataclasses import asdict, dataclass, fields, replace

from farflung.cli import ports
from farflung.cli.view import words
from farflung.cli.weights import shown
from farflung.cli.weights.plan_figures import Complete, Figures, complete, measure
from farflung.errors import UserError
from farflung.sharding.provisioning import Need, Tree, Work, need, spread_s, staleness


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The rule's answer."""

    figures: Complete
    num_workers: int
    num_workers_now: int | None
    patches: Need
    snapshots: Need


def run_plan(arguments: Namespace) -> int:
    """Print it; 1 where no network is fast enough, or the one that is given is not."""
    measured, num_workers = Figures(), None
    if arguments.url:
        if not ports.is_url(arguments.url):
            raise UserError(f"{arguments.url!r} is not the address of a coordinator, such as http://10.0.0.7:7400")
        measured, num_workers = asyncio.run(measure(arguments.url))
    given = {name: getattr(arguments, name) for name in (field.name for field in fields(Figures))}
    figures = replace(measured, **{name: value for name, value in given.items() if value is not None})
    plan = planned(figures, num_workers)
    if arguments.json:
        sys.stdout.write(json.dumps(_finite(asdict(plan)), indent=1) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in as_lines(plan))
    return 0 if is_enough(plan) else 1


def planned(figures: Figures, num_workers_now: int | None) -> Plan:
    """Raises UserError: a figure is lacking, or makes no sense."""
    known = complete(figures)
    patches, snapshots = (_need(known, num_bytes) for num_bytes in (known.patch_bytes, known.snapshot_bytes))
    return Plan(
        figures=known,
        num_workers=patches.num_workers,
        num_workers_now=num_workers_now,
        patches=patches,
        snapshots=snapshots,
    )


def is_enough(plan: Plan) -> bool:
    """Whether patches come in time: over the network that is given, or over any at all."""
    upload = plan.figures.upload_bytes_per_s
    return plan.patches.can_be_met and (upload is None or upload >= plan.patches.upload_bytes_per_s)


def as_lines(plan: Plan) -> list[str]:
    """For a person."""
    known = plan.figures
    now = "" if plan.num_workers_now is None else f" ({plan.num_workers_now} are there)"
    size = shown.num_bytes
    lines = [
        "measured or given",
        f"  a version takes {known.step_s:.3g} s and {words.count(known.batch_tokens)} tokens",
        f"  {shown.share(known.useful_share)} of what is sampled is used; a verdict takes {known.judge_s:g} s",
        f"  a lease is {words.count(known.lease_tokens)} tokens, {words.count(known.tokens_per_s)} a second",
        f"  at most {known.max_staleness} versions stale",
        f"  a patch is {size(known.patch_bytes)}, a snapshot {size(known.snapshot_bytes)}",
        f"  {known.depth} hops of {known.latency_s:g} s to a worker, {known.fan_out} below each",
        "needed",
        f"  {plan.num_workers} workers as fast as the slowest{now}",
        f"  for patches, upload of the coordinator and of every relay: {_rate(plan.patches)}",
        f"  for snapshots: {_rate(plan.snapshots)}",
    ]
    if known.upload_bytes_per_s is not None:
        lines += [f"with {shown.num_bytes(known.upload_bytes_per_s)}/s", *_with_upload(known, known.upload_bytes_per_s)]
    if not plan.patches.can_be_met:
        lines.append("No network is fast enough: shorter leases, faster workers, or a larger pool.max_staleness.")
    return lines


def _with_upload(known: Complete, upload: float) -> list[str]:
    lines = []
    for what, num_bytes in (("patch", known.patch_bytes), ("snapshot", known.snapshot_bytes)):
        spread = spread_s(num_bytes, _tree(known, num_bytes), upload)
        stale = staleness(spread, known.lease_tokens / known.tokens_per_s, _work(known))
        lines.append(f"  a {what} is everywhere after {spread:.3g} s: at most {stale} versions stale")
    return lines


def _rate(found: Need) -> str:
    return f"{shown.num_bytes(found.upload_bytes_per_s)}/s" if found.can_be_met else "none is enough"


def _need(known: Complete, version_bytes: int) -> Need:
    return need(
        _work(known),
        _tree(known, version_bytes),
        version_bytes=version_bytes,
        lease_tokens=round(known.lease_tokens),
        tokens_per_s=known.tokens_per_s,
    )


def _work(known: Complete) -> Work:
    return Work(
        step_s=known.step_s,
        batch_tokens=round(known.batch_tokens),
        useful_share=known.useful_share,
        judge_s=known.judge_s,
        max_staleness=known.max_staleness,
    )


def _tree(known: Complete, version_bytes: int) -> Tree:
    """A version smaller than a chunk is one chunk of its own size."""
    return Tree(
        fan_out=known.fan_out,
        depth=known.depth,
        chunk_bytes=min(known.chunk_bytes, version_bytes),
        latency_s=known.latency_s,
    )


def _finite(value: object) -> object:
    """JSON has no infinity: null is none."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
