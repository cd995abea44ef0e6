"""The pool of children: limits, blame, threads, and what a kill leaves behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from farflung.rewards.decision import Decision
from farflung.sandbox.math.config import MIB, MathPoolConfig
from farflung.sandbox.math.pool import MathPool

pytest.importorskip("math_verify")

TOWER = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)}-4\right)}-5}{16}"
NUM_AT_ONCE = 200

FAKE = """
import json, os, resource, signal, socket, sys, time
channel = socket.socket(fileno=os.dup(0))

def say(word):
    body = json.dumps(word).encode()
    channel.sendall(len(body).to_bytes(4, "big") + body)

def hear():
    length = int.from_bytes(channel.recv(4, socket.MSG_WAITALL), "big")
    return json.loads(channel.recv(length, socket.MSG_WAITALL)) if length else sys.exit()

say("ready")
while True:
    gold, answer = hear()
    {act}
"""


def fake(tmp_path: Path, act: str) -> list[str]:
    """A child that does `act` on each question."""
    script = tmp_path / "child.py"
    script.write_text(FAKE.replace("{act}", act), encoding="utf-8")
    return [sys.executable, str(script)]


def faked(tmp_path: Path, act: str, **limits: float) -> MathPool:
    config = MathPoolConfig(**{"wall_s": 5.0, "max_attempts": 2, **limits})  # type: ignore[arg-type]
    return MathPool(config, command=fake(tmp_path, act))


@pytest.fixture(scope="module")
def pool() -> Iterator[MathPool]:
    with MathPool(MathPoolConfig(cpu_s=1.0)) as pool:
        yield pool


@pytest.mark.parametrize(
    ("gold", "answer", "rule"),
    [
        (r"\sqrt{8}", r"2\sqrt{2}", "second_opinion_equal"),
        (r"\sqrt{8}", r"2\sqrt{3}", "second_opinion_different"),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}", "second_opinion_overruled"),
        ("50", r"50\%", "second_opinion_overruled"),
        (r"\frac{1}{3}", "0.3333333333", "second_opinion_different"),
        (r"\sqrt{2}", r"\frac{", "answer_unreadable"),
        (r"\frac{", "1", "gold_unparseable"),
    ],
)
def test_an_opinion_names_its_rule(pool: MathPool, gold: str, answer: str, rule: str) -> None:
    assert pool.ask(gold, answer).rule == rule


def test_only_an_unreadable_gold_has_no_verdict(pool: MathPool) -> None:
    assert pool.ask(r"\frac{", "1").verdict is None
    assert pool.ask("1", r"\frac{").verdict == 0.0


@pytest.mark.parametrize("answer", [TOWER, "9^{9^{9^{9}}}", "99999999!", "(9^{9^{9}})^2"])  # cases 24 and 25
def test_an_expression_that_never_ends_is_wrong_within_the_limit(pool: MathPool, answer: str) -> None:
    decision = pool.ask("16", answer)
    assert decision.verdict == 0.0
    assert decision.rule in ("answer_too_slow", "answer_too_large")


def test_a_gold_that_never_ends_cannot_be_graded_against(pool: MathPool) -> None:
    over_limits = Decision(None, "gold_unparseable", "the gold is over the limits of the sandbox")
    assert pool.ask("9^{9^{9^{9}}}", "2") == over_limits
    assert pool.ask("1" * 3_000, "1") == over_limits


def test_two_hundred_towers_at_once_leave_right_answers_right() -> None:  # case 31
    """From worker threads, where time limits that use signals would raise."""
    questions = [("16", TOWER if index % 4 else rf"\sqrt{{256}}+{index}-{index}") for index in range(NUM_AT_ONCE)]
    with MathPool(MathPoolConfig(cpu_s=1.0)) as pool, ThreadPoolExecutor(NUM_AT_ONCE) as threads:
        decisions = list(threads.map(lambda question: pool.ask(*question), questions, timeout=100))
        assert len(pool.pids()) <= 2
    assert [decision.verdict for decision in decisions] == [0.0 if index % 4 else 1.0 for index in range(NUM_AT_ONCE)]


def test_a_killed_child_is_replaced_and_the_question_asked_again() -> None:
    with MathPool(MathPoolConfig(max_children=1)) as pool:
        assert pool.ask("2", r"\sqrt{4}").verdict == 1.0
        (first,) = pool.pids()
        os.kill(first, signal.SIGKILL)
        assert pool.ask("3", r"\sqrt{9}").verdict == 1.0
        assert pool.pids() != [first]


def test_children_that_are_always_killed_are_nobodys_wrong_answer(tmp_path: Path) -> None:
    with faked(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)") as pool:
        decision = pool.ask("1", "1")
    assert decision == Decision(None, "sandbox_failed", "2 attempts; the last: a child ended: lost")


def test_a_child_that_hangs_without_computing_is_the_machines_fault(tmp_path: Path) -> None:
    with faked(tmp_path, "say('gold_read'); time.sleep(1000)", wall_s=0.3) as pool:
        decision = pool.ask("1", "1")
    assert (decision.verdict, decision.rule) == (None, "sandbox_failed")


def test_a_child_that_crashes_on_the_answer_twice_makes_it_wrong(tmp_path: Path) -> None:
    with faked(tmp_path, "say('gold_read'); os.kill(os.getpid(), signal.SIGSEGV)") as pool:
        assert pool.ask("1", "1") == Decision(0.0, "answer_too_deep")


def test_a_worn_child_gets_a_second_try_in_a_fresh_one(tmp_path: Path) -> None:
    act = "say('gold_read'); say('out_of_memory' if os.path.exists('{flag}') else 'equal'); open('{flag}', 'w').close()"
    with faked(tmp_path, act.replace("{flag}", str(tmp_path / "flag"))) as pool:
        assert pool.ask("1", "1").verdict == 1.0
        (first,) = pool.pids()
        assert pool.ask("1", "2") == Decision(0.0, "answer_too_large")
        assert first not in pool.pids()


@pytest.mark.parametrize(
    "act",
    [
        "channel.sendall(b'x' * 50_000_000)",  # a flood
        "channel.sendall((1 << 31).to_bytes(4, 'big'))",  # a length that would fill memory
        "say('equal' * 1000)",
        "say(['equal'])",
        "say(1.0)",
        "say('right')",
        "channel.sendall(b'\\0\\0\\0\\5equal')",
        "channel.sendall(b'\\0\\0')",
        "say('ready')",
        "say('gold_read'); say('gold_read')",
        "channel.close()",
    ],
)
def test_a_child_that_breaks_the_protocol_gives_no_verdict(tmp_path: Path, act: str) -> None:
    with faked(tmp_path, f"{act}; sys.exit()", wall_s=2.0) as pool:
        decision = pool.ask("1", "1")
    assert (decision.verdict, decision.rule) == (None, "sandbox_failed")


def test_output_of_a_child_goes_nowhere(tmp_path: Path) -> None:
    act = "os.write(1, b'x' * 10_000_000); os.write(2, b'x' * 10_000_000); say('gold_read'); say('equal')"
    with faked(tmp_path, act) as pool:
        assert pool.ask("1", "1").verdict == 1.0


def test_the_childs_memory_is_bounded() -> None:
    """A child that may take less than it needs to start never becomes ready; the answer is not blamed."""
    with MathPool(MathPoolConfig(memory_bytes=8 * MIB, max_attempts=1)) as pool:
        decision = pool.ask("1", "1")
    assert decision == Decision(
        None, "sandbox_failed", "1 attempts; the last: a child for mathematics did not become ready"
    )


def test_children_end_with_their_pool_and_a_closed_pool_gives_no_verdict() -> None:
    pool = MathPool(MathPoolConfig(max_children=1))
    assert pool.ask("2", r"\sqrt{4}").verdict == 1.0
    (pid,) = pool.pids()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert pool.ask("3", r"\sqrt{9}") == Decision(None, "sandbox_closed")


def test_closing_interrupts_a_question(tmp_path: Path) -> None:
    with faked(tmp_path, f"open('{tmp_path}/asked', 'w').close(); time.sleep(1000)", wall_s=600.0) as pool:
        decisions: list[Decision] = []
        asking = threading.Thread(target=lambda: decisions.append(pool.ask("1", "1")))
        asking.start()
        while not (tmp_path / "asked").exists():
            time.sleep(0.01)
        pool.close()
        asking.join(timeout=20)
    assert decisions == [Decision(None, "sandbox_closed")]


def test_a_full_pool_gives_no_verdict_after_its_patience(tmp_path: Path) -> None:
    act = f"open('{tmp_path}/asked', 'w').close(); time.sleep(1000)"
    with faked(tmp_path, act, wall_s=600.0, wait_wall_s=0.05, max_children=1) as pool:
        asking = threading.Thread(target=pool.ask, args=("1", "1"))
        asking.start()
        while not (tmp_path / "asked").exists():
            time.sleep(0.01)
        assert pool.ask("1", "2").rule == "sandbox_busy"
        pool.close()
        asking.join(timeout=20)


def test_one_question_is_put_to_a_child_once(tmp_path: Path) -> None:
    with faked(tmp_path, f"say('gold_read'); say('equal'); open('{tmp_path}/asked', 'a').write('.')") as pool:
        assert [pool.ask("1", "1").verdict for _ in range(5)] == [1.0] * 5
        pool.ask("1", "2")
    assert (tmp_path / "asked").read_text() in (".", "..")  # the last dot may come after the kill


def test_a_child_is_replaced_after_its_share_of_questions(tmp_path: Path) -> None:
    with faked(tmp_path, "say('gold_read'); say('equal')", max_questions=2, max_children=1) as pool:
        pids = []
        for index in range(4):
            pool.ask("1", str(index))
            pids.append(pool.pids())
    assert [len(pid) for pid in pids] == [1, 0, 1, 0]


def test_children_outlive_no_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal\n"
        "from farflung.sandbox.math.pool import MathPool\n"
        "pool = MathPool()\n"
        "pool.ask('2', r'\\sqrt{4}')\n"
        "print(*pool.pids(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    (pid,) = map(int, done.stdout.split())
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("a child outlives its parent")


@pytest.mark.filterwarnings("ignore:.*fork")  # Python 3.12 warns of forks beside threads
def test_a_forked_process_has_children_of_its_own() -> None:
    with MathPool(MathPoolConfig(max_children=1)) as pool:
        assert pool.ask("2", r"\sqrt{4}").verdict == 1.0
        before = pool.pids()
        pool._lock.acquire()  # as another thread of the parent might hold it
        forked = os.fork()
        if forked == 0:
            is_right = pool.pids() == [] and pool.ask("3", r"\sqrt{9}").verdict == 1.0 and pool.pids() != before
            pool.close()
            os._exit(0 if is_right else 1)
        pool._lock.release()
        assert os.waitpid(forked, 0)[1] == 0
        assert pool.ask("4", r"\sqrt{16}").verdict == 1.0
        assert pool.pids() == before


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match="cpu_s is 0"):
        MathPoolConfig(cpu_s=0)


INSIDE = """
import os, socket, subprocess, sys
from farflung.sandbox.math import child
def attempt(action):
    try:
        action()
    except OSError:
        return False
    return True
child._limit(1 << 30)
child._shut_in()
print([
    attempt(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=1)),
    attempt(lambda: socket.socket(socket.AF_UNIX)),
    attempt(lambda: open(sys.argv[2], "w").write("x")),
    attempt(lambda: os.unlink(sys.argv[2])),
    attempt(lambda: subprocess.run(["/bin/true"])),
    attempt(lambda: open(sys.argv[2]).read()),
])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the list of system calls is Linux's")
def test_a_child_reaches_no_network_and_writes_no_file(tmp_path: Path) -> None:
    """E5, for what an algebra system makes of an answer."""
    victim = tmp_path / "file"
    victim.write_text("kept")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [sys.executable, "-c", INSIDE, str(listener.getsockname()[1]), str(victim)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False, False, False, False, False, True]", done.stderr
    assert victim.read_text() == "kept"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_running_child_is_under_the_filter(pool: MathPool) -> None:
    assert pool.ask(r"\frac{1}{2}", "0.5").verdict == 1.0
    (child, *_) = pool._idle
    status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status
