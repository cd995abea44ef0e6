"""What the view shows: figures from rows and statuses, one screen, one line, and the thread that looks."""

import asyncio
import threading
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web
from msgspec.structs import replace
from rich.console import Console

from farflung.api import routes
from farflung.cli.status import render_status
from farflung.cli.view import plain
from farflung.cli.view.live import LineDisplay, Watch
from farflung.cli.view.screen import screen
from farflung.cli.view.state import Figures, RunState, merged_drops
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus, Role


def heartbeat(
    node: str, role: Role, *, busy_s: float, idle_s: float, tokens: int = 0, activity: str = "x"
) -> Heartbeat:
    return Heartbeat(
        node=node,
        role=role,
        policy_version=7,
        activity=activity,
        busy_s=busy_s,
        idle_s=idle_s,
        cpu_s=busy_s,
        tokens=tokens,
        tokens_per_s=100.0,
    )


def status(*heartbeats: Heartbeat, version: int = 8, dead: tuple[str, ...] = (), **changes: Any) -> PoolStatus:
    nodes = tuple(NodeStatus(heartbeat=h, last_seen_ms=1000, is_alive=h.node not in dead) for h in heartbeats)
    fields: dict[str, Any] = {
        "pool": "demo",
        "policy_version": version,
        "nodes": nodes,
        "slots": {"accepted": 3},
        "drops": {},
        "tokens_generated": 12_000,
        "tokens_accepted": 11_000,
        "outstanding_groups": 2,
        "is_finished": False,
    }
    return PoolStatus(**{**fields, **changes})


def train(version: int, reward: float, **figures: Any) -> dict[str, Any]:
    row = {"kind": "train", "version": version, "time_s": 10.0 * version, "reward/mean": reward, "num_tokens": 100}
    return {**row, "staleness/mean": 2.0, "staleness/max": 3.0, "staleness/histogram": {"2": 8, "3": 8}, **figures}


def new_state() -> RunState:
    return RunState(name="demo", environment="sort-digits", max_versions=20, max_staleness=4, started_s=100.0)


def busy_state() -> RunState:
    state = new_state()
    state.add_rows([{"kind": "warm_start", "step": 40, "accuracy": 0.3}])
    state.add_rows([{"kind": "eval", "version": 0, "accuracy": 0.31}, {"kind": "eval", "version": 5, "accuracy": 0.6}])
    state.add_rows([train(v, 0.3 + v / 20, policy_loss=-0.01, drops={"no_signal": 7 * v}) for v in range(1, 9)])
    state.add_status(
        status(
            heartbeat("trainer", Role.TRAINER, busy_s=10, idle_s=0),
            heartbeat("worker-1", Role.WORKER, busy_s=10, idle_s=0, tokens=1000),
            heartbeat("worker-2", Role.WORKER, busy_s=2, idle_s=8, tokens=500),
        ),
        150.0,
    )
    state.add_status(
        status(
            heartbeat("validator-1", Role.VALIDATOR, busy_s=1, idle_s=19, activity="waiting for submissions"),
            heartbeat("worker-2", Role.WORKER, busy_s=4, idle_s=16, tokens=1500, activity="waiting for lease"),
            heartbeat("worker-1", Role.WORKER, busy_s=20, idle_s=0, tokens=4000, activity="sampling"),
            heartbeat("trainer", Role.TRAINER, busy_s=19, idle_s=1, activity="training"),
            dead=("validator-1",),
            drops={"groups_without_gradient": 9, "expired": 2},
        ),
        160.0,
    )
    return state


def text(figures: Figures, width: int, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, file=None, record=True, color_system=None)
    with console.capture() as capture:
        console.print(screen(figures, width, height))
    return capture.get().splitlines()


def test_figures_are_folded_from_rows_and_statuses() -> None:
    figures = busy_state().figures(160.0)
    assert (figures.version, figures.elapsed_s, figures.left_s) == (8, 60.0, 10.0 * 12)
    assert figures.reward == tuple((float(v), 0.3 + v / 20) for v in range(1, 9))
    assert figures.accuracy == ((0.0, 0.31), (5.0, 0.6))
    assert (figures.staleness_mean, figures.staleness_max, figures.staleness_counts) == (2.0, 3, (0, 0, 64, 64, 0))
    assert (figures.tokens_generated, figures.tokens_accepted, figures.tokens_trained) == (12_000, 11_000, 800)
    assert figures.drops == {"no_signal": 56, "expired": 2}
    assert figures.tokens_per_s == 300.0 + 100.0


def test_rates_and_idle_shares_are_of_the_last_seconds_in_the_order_of_roles() -> None:
    nodes = busy_state().figures(160.0).nodes
    assert [node.name for node in nodes] == ["trainer", "worker-1", "worker-2", "validator-1"]
    assert [node.idle_share for node in nodes] == [pytest.approx(0.1), 0.0, pytest.approx(0.8), None]
    assert [node.tokens_per_s for node in nodes] == [0.0, 300.0, 100.0, None]


def test_a_process_that_was_started_again_has_no_rate_until_its_next_sign_of_life() -> None:
    state = new_state()
    state.add_status(status(heartbeat("worker-1", Role.WORKER, busy_s=10, idle_s=50, tokens=900)), 150.0)
    state.add_status(status(heartbeat("worker-1", Role.WORKER, busy_s=1, idle_s=1, tokens=0)), 155.0)
    (node,) = state.figures(155.0).nodes
    assert (node.idle_share, node.tokens_per_s) == (None, None)


def test_a_version_that_was_logged_twice_counts_once_and_the_last_counts() -> None:
    state = new_state()
    state.add_rows([train(1, 0.1), train(2, 0.2), train(2, 0.4)])
    assert state.figures(0.0).reward == ((1.0, 0.1), (2.0, 0.4))


def test_drops_are_told_by_whoever_has_seen_more_of_them() -> None:
    rows = [{"drops": {"no_signal": 3}}, {"drops": {"no_signal": 5, "stale": 16, "canary": 0}}, {}]
    assert merged_drops({"expired": 9, "stale": 32, "no_signal": 1, "groups_without_gradient": 5}, rows) == {
        "stale": 32,
        "expired": 9,
        "no_signal": 5,
    }
    assert merged_drops({"groups_without_gradient": 5}, []) == {"groups_without_gradient": 5}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40)])
def test_the_screen_fits_the_terminal_and_shows_the_reward_before_everything_else(width: int, height: int) -> None:
    state = busy_state()
    state.add_note("worker-2 was killed by SIGKILL (out of memory?); starting again in 0.5 s")
    lines = text(state.figures(160.0), width, height)
    assert max(len(line) for line in lines) <= width
    assert len(lines) <= height
    page = "\n".join(lines)
    for shown in (
        "demo · sort-digits · version 8/20",
        "0.35 at first, 0.6",
        "0.31 at first, 0.60 now",
        "mean 2.0, max 3 of 4 allowed",
        "no_signal 56, expired 2",
        "waiting for lease",
        "not heard of",
        "worker-2 was killed by SIGKILL",
        "Loss -0.0100. A loss near 0 is normal here and no signal: watch the reward.",
        "Ctrl-C stops cleanly",
    ):
        assert shown in page
    assert page.index("reward") < page.index("Loss")


def test_an_empty_screen_says_what_is_awaited() -> None:
    page = "\n".join(text(new_state().figures(101.0), 80))
    assert "starting" in page
    assert "does not answer" not in page
    assert "nothing yet" in page


def test_one_line_says_the_same() -> None:
    assert plain.line(busy_state().figures(160.0)) == (
        "[1 min 00 s] version 8/20  reward 0.70  held-out 0.60  staleness 2.0 (max 3)  400 tok/s  "
        "waiting: trainer 10 %, worker-1 0 %, worker-2 80 %  dropped 58  left 2 min 00 s"
    )
    state = new_state()
    state.add_rows([{"kind": "warm_start", "step": 40, "accuracy": 0.25}])
    assert plain.line(state.figures(103.0)) == ("[3 s] warm start: supervised step 40, accuracy 0.25")


def test_a_silent_coordinator_is_told_once_it_should_have_started_and_at_once_when_it_falls_silent() -> None:
    state = new_state()
    assert plain.line(state.figures(129.0)) == "[29 s] starting"
    assert plain.line(state.figures(131.0)) == "[31 s] starting  coordinator does not answer yet"
    state.add_status(status(), 132.0)
    assert "answer" not in plain.line(state.figures(132.0))
    state.add_status(None, 133.0)
    assert plain.line(state.figures(133.0)).endswith("coordinator does not answer")


def test_names_and_words_of_others_are_neither_markup_nor_obeyed_by_a_terminal() -> None:
    state = new_state()
    name = "[bold]x[/nothing]"
    state.add_status(status(heartbeat(name, Role.WORKER, busy_s=1, idle_s=1), drops={"[red]stale\x1b[2J": 2}), 150.0)
    state.add_note("worker-1 ended with code 1: \x1b]0;title\x07[/]")
    page = "\n".join(text(state.figures(150.0), 120, 40))
    assert name in page
    assert "[red]stale?[2J 2" in page
    assert "?]0;title?[/]" in page
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        answer = status(heartbeat(name, Role.WORKER, busy_s=1, idle_s=1), drops={"a\x1bb": 1}, pool="p\x07")
        console.print(render_status(answer, now_ms=4000))
    assert name in capture.get()
    assert "a?b 1" in capture.get()
    assert " p? " in capture.get()


def test_the_screen_shows_what_goes_astray_before_the_reward_does() -> None:
    state = new_state()
    figures = {"entropy": 0.5, "grad_norm": 2.0, "completions/clipped_ratio": 0.25, "mismatch_kl/mean": 0.002}
    state.add_rows([train(v, 0.3, **figures) for v in (1, 2)])
    page = "\n".join(text(state.figures(160.0), 100, 30))
    assert "entropy 0.50, gradient 2, mismatch 0.002, truncated 25 %" in page


def test_lines_are_printed_every_few_seconds_and_notes_at_once() -> None:
    lines: list[str] = []
    display = LineDisplay(lines.append, every_s=5.0)
    for now_s in (100.0, 101.0, 104.0, 105.0, 106.0):
        display.show(new_state().figures(now_s))
    display.note("a note")
    assert [line.partition("]")[0] for line in lines] == ["[0 s", "[5 s", "a note"]


class Recorder:
    """A display that remembers."""

    def __init__(self) -> None:
        self.shown: list[Figures] = []
        self.notes: list[str] = []
        self.is_closed = False

    def show(self, figures: Figures) -> None:
        self.shown.append(figures)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        self.is_closed = True


class StatusServer:
    """A coordinator that knows nothing but its status, in a thread."""

    def __init__(self, answer: PoolStatus) -> None:
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self.url = ""
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()
        asyncio.set_event_loop(None)

    async def _serve(self) -> None:
        async def answer(_request: web.Request) -> web.Response:
            return web.Response(body=self._answer.to_bytes(), content_type=routes.RECORD_TYPE)

        app = web.Application()
        app.router.add_get(routes.STATUS.path, answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()


def test_the_watch_asks_reads_and_draws_until_it_is_closed(tmp_path: Path) -> None:
    metrics, display, account = tmp_path / "metrics.jsonl", Recorder(), []
    with StatusServer(status(heartbeat("worker-1", Role.WORKER, busy_s=1, idle_s=1))) as server:
        watch = Watch(
            server.url, metrics, new_state(), display,
            account=lambda status, _now_s, was_asked: account.append((status, was_asked)),
        )  # fmt: skip
        watch.start()
        watch.look()
        metrics.write_text('{"kind": "eval", "version": 9, "accuracy": 0.75}\n')
        watch.look()
        watch.close()
    assert [was_asked for _, was_asked in account].count(True) == 2  # so that the last figures are booked
    assert display.is_closed
    assert display.shown[-1].is_reachable
    assert display.shown[-1].accuracy == ((9.0, 0.75),)


def test_a_coordinator_that_does_not_answer_stops_neither_the_watch_nor_its_end(tmp_path: Path) -> None:
    display = Recorder()
    watch = Watch("http://127.0.0.1:1", tmp_path / "none", new_state(), display, account=lambda *_: None)
    watch.start()
    watch.look()
    watch.close()
    assert display.is_closed
    assert not display.shown[-1].is_reachable


def test_changes_that_were_accepted_now_are_noted_and_those_of_an_earlier_start_are_not(tmp_path: Path) -> None:
    metrics, display = tmp_path / "metrics.jsonl", Recorder()
    metrics.write_text('{"kind": "changes", "version": 2, "changes": "a: 1 -> 2"}\n')
    watch = Watch("http://127.0.0.1:1", metrics, new_state(), display, account=lambda *_: None)
    with metrics.open("a") as file:
        file.write('{"kind": "changes", "version": 3, "changes": "b: 1 -> 2"}\n')
    watch.start()
    watch.close()
    assert display.notes == ["goes on with changes that were accepted: b: 1 -> 2"]


def test_versions_that_were_lost_are_on_no_curve() -> None:
    state = new_state()
    state.add_rows({"kind": "eval", "version": version, "accuracy": 0.5} for version in (0, 4, 8))
    state.add_rows([{"kind": "stepped_back", "version": 4, "from_version": 8}])
    assert state.figures(0.0).accuracy == ((0.0, 0.5), (4.0, 0.5))


def test_the_status_of_a_pool_is_shown_whole() -> None:
    answer = status(
        heartbeat("worker-1", Role.WORKER, busy_s=30, idle_s=10, tokens=4000, activity="sampling"),
        heartbeat("worker-2", Role.WORKER, busy_s=0, idle_s=0),
        dead=("worker-2",),
        drops={"expired": 2},
    )
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(render_status(answer, now_ms=4000))
    page = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert page[0] == "demo · running · version 8"
    assert page[2:4] == ["slots: accepted 3", "dropped: expired 2"]
    assert "worker-1 sampling 75 % 4 k 100 7 3 s ago" in page
    assert "worker-2 not heard of 0 100 7 3 s ago" in page


def test_a_finished_pool_says_so_and_alarms_nobody_about_those_who_left() -> None:
    answer = status(heartbeat("worker-1", Role.WORKER, busy_s=3, idle_s=1), dead=("worker-1",), is_finished=True)
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(render_status(answer, now_ms=4000))
    assert " demo · finished at version 8\n" in capture.get()
    assert "has left" in capture.get()
    assert "under way" not in capture.get()


def test_a_role_that_has_started_again_never_waits_a_negative_time() -> None:
    """Its new life is longer than the old one was, but it has waited less."""
    state = new_state()
    state.add_status(status(heartbeat("trainer", Role.TRAINER, busy_s=2, idle_s=10)), 100.0)
    state.add_status(status(heartbeat("trainer", Role.TRAINER, busy_s=13, idle_s=1)), 114.0)
    (node,) = state.figures(114.0).nodes
    assert node.idle_share is None


def test_what_was_recorded_against_nodes_is_told_where_there_is_some() -> None:
    for faults, line in (({"false_accept": 1, "not_revealed": 3}, "not_revealed 3, false_accept 1"), ({}, None)):
        answer = status(heartbeat("worker-1", Role.WORKER, busy_s=3, idle_s=1), faults=faults)
        console = Console(width=100, color_system=None)
        with console.capture() as capture:
            console.print(render_status(answer, now_ms=4000))
        assert (f" recorded against nodes: {line}\n" in capture.get()) == (line is not None)
        assert ("recorded against" in capture.get()) == (line is not None)


def test_a_worker_is_shown_with_the_capability_class_of_its_lease() -> None:
    sampling = heartbeat("worker-1", Role.WORKER, busy_s=3, idle_s=1, activity="sampling")
    answer = status(replace(sampling, capability_class="slow"), replace(sampling, node="worker-2"))
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(render_status(answer, now_ms=4000))
    page = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "worker-1 sampling (slow) 75 % 0 100 7 3 s ago" in page
    assert "worker-2 sampling 75 % 0 100 7 3 s ago" in page
