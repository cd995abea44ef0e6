"""The relays of a pool as a table: who is handed out, whom each fetches from, and why another one is not."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from farflung.cli.view import words
from farflung.wire.node import PoolStatus
from farflung.wire.relay import RelayStatus


def relay_lines(status: PoolStatus, now_ms: int) -> list[RenderableType]:
    """One row a relay; those that nobody is sent to are red. Nothing in a pool without relays."""
    if not status.relays:
        return []
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    for title in ("relay", "fetches from", "state"):
        table.add_column(title)
    for title in ("version", "seen"):
        table.add_column(title, justify="right", no_wrap=True)
    for relay in status.relays:
        table.add_row(*map(Text, _cells(relay, now_ms)), style="red" if relay.problem else "")
    return [Text(), table]


def _cells(relay: RelayStatus, now_ms: int) -> tuple[str, ...]:
    seen = f"{words.duration((now_ms - relay.last_seen_ms) / 1000)} ago" if relay.last_seen_ms else ""
    return (
        words.plain(f"{relay.url} ({relay.relay})" if relay.relay else relay.url),
        words.plain(relay.parent or ("coordinator" if relay.relay and not relay.problem else "")),
        words.plain(_state(relay), 240),
        str(relay.policy_version) if relay.policy_version >= 0 else "",
        seen,
    )


def _state(relay: RelayStatus) -> str:
    accused = f"; {relay.num_accusers} say that it lied" if relay.num_accusers else ""
    return f"dropped: {relay.problem}{accused}" if relay.problem else f"listed{accused}"
