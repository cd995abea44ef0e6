"""`farflung status URL`: what a coordinator knows, once."""

import asyncio
import sys
import time
from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from farflung.api.client import CoordinatorClient
from farflung.cli import ports
from farflung.cli.relay_table import relay_lines
from farflung.cli.view import words
from farflung.errors import UserError
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus, Role


def show_status(url: str) -> int:
    """Print it. Raises `Transient` when nobody answers."""
    if not ports.is_url(url):
        raise UserError(f"{url!r} is not the address of a coordinator: it must look like http://10.0.0.7:7400")
    status = asyncio.run(_ask(url))
    Console(file=sys.stdout).print(render_status(status, status.at_ms or int(time.time() * 1000)))
    return 0


async def _ask(url: str) -> PoolStatus:
    async with CoordinatorClient(url, node="status", role=Role.COORDINATOR) as client:
        return await client.status()


def render_status(status: PoolStatus, now_ms: int) -> RenderableType:
    """The pool, its processes, its slots."""
    version = "no version yet" if status.policy_version < 0 else f"version {status.policy_version}"
    state = f"finished at {version}" if status.is_finished else f"running · {version}"
    nodes = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    for title, justify in (("process", "left"), ("does", "left"), ("worked", "right"), ("tokens", "right"),
                           ("tokens/s", "right"), ("version", "right"), ("seen", "right")):  # fmt: skip
        nodes.add_column(title, justify="right" if justify == "right" else "left", no_wrap=True)
    for node in sorted(status.nodes, key=lambda node: (node.heartbeat.role, node.heartbeat.node)):
        gone = "dim" if status.is_finished else "red"
        nodes.add_row(*map(Text, _cells(node, now_ms, status.is_finished)), style="" if node.is_alive else gone)
    tokens = f"{words.count(status.tokens_generated)} sampled, {words.count(status.tokens_accepted)} accepted"
    under_way = "" if status.is_finished else f"; tasks under way: {status.outstanding_groups}"
    return Group(
        Text(f" {words.plain(status.pool)} · {state}", style="bold"),
        Text(f" tokens: {tokens}{under_way}"),
        Text(f" slots: {_counts(status.slots)}"),
        Text(f" dropped: {_counts(status.drops)}"),
        *([Text(f" not graded: {_counts(status.grading_faults)}", style="yellow")] if status.grading_faults else []),
        *([Text(f" recorded against nodes: {_counts(status.faults)}", style="yellow")] if status.faults else []),
        Text(),
        nodes if status.nodes else Text(" no process has been heard of"),
        *([Text(f" and {status.num_unlisted} more")] if status.num_unlisted else []),
        *relay_lines(status, now_ms),
    )


def _cells(node: NodeStatus, now_ms: int, is_finished: bool) -> tuple[str, ...]:
    heartbeat = node.heartbeat
    gone = "has left" if is_finished else "not heard of"
    total_s = heartbeat.busy_s + heartbeat.idle_s
    return (
        words.plain(heartbeat.node),
        words.plain(_doing(heartbeat)) if node.is_alive else gone,
        words.percent(heartbeat.busy_s / total_s) if total_s > 0 else "",
        words.count(heartbeat.tokens),
        words.count(heartbeat.tokens_per_s),
        str(heartbeat.policy_version) if heartbeat.policy_version >= 0 else "",
        f"{words.duration((now_ms - node.last_seen_ms) / 1000)} ago",
    )


def _doing(heartbeat: Heartbeat) -> str:
    of_class = f" ({heartbeat.capability_class})" if heartbeat.capability_class else ""
    alarm = f"; distrusts versions: {heartbeat.alarm}" if heartbeat.alarm else ""
    return f"{heartbeat.activity}{of_class}{alarm}"


def _counts(counts: Mapping[str, int]) -> str:
    shown = sorted(((name, number) for name, number in counts.items() if number), key=lambda item: -item[1])
    return ", ".join(f"{words.plain(name)} {words.count(number)}" for name, number in shown) or "none"
