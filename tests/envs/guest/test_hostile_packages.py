"""Packages whose author is an enemy: whatever they try at import or later, none of it leaves the child. Threat E1."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from farflung.envs.guest.environment import GuestEnvironment
from farflung.envs.guest.process import LIMITS, GuestProcess, GuestSource, GuestTimes
from farflung.errors import FarflungError, OurFault

HONEST = """
from farflung.envs.simple import Row, SimpleEnvironment


def environment(seed, args):
    return SimpleEnvironment(
        name="guest",
        tasks=lambda number: Row(prompt=f"{number}=", answer=report(number)),
        num_tasks=50,
        rewards={"exact": reward},
        seed=seed,
    )


def report(number):
    return str(number)


def reward(task, completion):
    return float(completion == task.answer)
"""
"""A later definition of `report` or `reward` replaces the one above."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="walls are the Linux kernel's")
_processes: list[GuestProcess] = []


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    while _processes:
        _processes.pop().close()


def guest(folder: Path, hostile: str = "", times: GuestTimes | None = None) -> GuestEnvironment:
    """The environment, whose package is the honest one with something added at the end."""
    folder.mkdir(exist_ok=True)
    (folder / "package.py").write_text(HONEST + hostile)
    process = GuestProcess(
        GuestSource(folder=folder, reference="package:environment", seed=1),
        times=times or GuestTimes(load_s=20.0, answer_s=2.0),
        limits=LIMITS,
    )
    _processes.append(process)
    return GuestEnvironment(process, process.describe())


def seen(folder: Path, expression: str) -> str:
    """What an expression is inside the child, read from a task."""
    env = guest(folder, f"\n\ndef report(number):\n    import os, sys\n    return repr({expression})\n")
    return env.task("train", 0).answer


def attempt(folder: Path, statement: str) -> str:
    """What comes of a statement at import: `done`, or the name of what it raised."""
    code = "\noutcome = 'done'\ntry:\n"
    code += "".join(f"    {line}\n" for line in statement.splitlines())
    code += "except BaseException as error:\n    outcome = type(error).__name__\n"
    code += "\n\ndef report(number):\n    return outcome\n"
    return guest(folder, code).task("train", 0).answer


def test_an_honest_package_works(tmp_path: Path) -> None:
    env = guest(tmp_path / "package")
    task = env.task("train", 0)
    assert env.grade(task, task.answer).components == {"exact": 1.0}
    assert env.demonstration(task, 0) == task.answer
    with pytest.raises(IndexError, match="task 99 of the heldout split"):
        env.task("heldout", 99)
    with pytest.raises(ValueError, match="target length 7"):
        env.task("train", 0, 7)


def test_no_variable_of_ours_is_in_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    names = seen(tmp_path / "package", "sorted(os.environ)")
    assert "SECRET" not in names
    assert "hunter2" not in seen(tmp_path / "other", "dict(os.environ)")


def test_homes_keys_and_processes_are_not_there(tmp_path: Path) -> None:
    places = ["~/.ssh", "~/.aws", "~/.config", "/root/.ssh", "/root/.bashrc", "/home", "/etc/passwd", "/proc/1/environ"]
    found = seen(tmp_path / "package", f"[path for path in {places!r} if os.path.exists(os.path.expanduser(path))]")
    assert found == "[]"


def test_files_of_ours_beside_the_package_are_not_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    assert attempt(tmp_path / "package", f"open({str(secret)!r}).read()") == "FileNotFoundError"


def test_its_own_files_and_ours_cannot_be_written(tmp_path: Path) -> None:
    targets = ["/package/package.py", "/package/new.py", "/ours/farflung/errors.py", "/installed-0/evil.pth", "/evil"]
    code = f"""
outcomes = []
for target in {targets!r}:
    try:
        open(target, "w").write("x")
        outcomes.append(target)
    except OSError:
        pass


def report(number):
    return repr(outcomes)
"""
    folder = tmp_path / "package"
    assert guest(folder, code).task("train", 0).answer == "[]"
    assert (folder / "package.py").read_text() == HONEST + code
    assert [path.name for path in folder.iterdir()] == ["package.py"]


def test_there_is_no_network(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        statement = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)"
        assert attempt(tmp_path / "package", statement) != "done"
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_fork_at_import_does_not_outlive_the_child(tmp_path: Path) -> None:
    mark = f"farflung-{os.getpid()}-{time.monotonic_ns()}"
    fork = (
        f"\nimport subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', '{mark}'])\n"
    )
    env = guest(tmp_path / "package", fork)
    assert env.task("train", 0).task_id == "train/0"
    assert _running(mark)
    _processes[-1].close()
    assert not _running(mark)


def _running(mark: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if mark.encode() in path.read_bytes():
                return True
    return False


def test_a_fork_bomb_at_import_is_contained(tmp_path: Path) -> None:
    bomb = "import os\nfor _ in range(500):\n    if os.fork() == 0:\n        import time\n        time.sleep(30)"
    try:
        assert attempt(tmp_path / "package", bomb) != "done"
    except FarflungError as error:  # the whole child may go down with it
        assert "loading" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("hostile", "message"),
    [
        ("\nwhile True: pass\n", "took longer than 1 s"),
        ("\nimport time\ntime.sleep(60)\n", "took longer than 1 s"),
        ("\nimport os\nos._exit(0)\n", "the child ended"),
        ("\nraise SystemExit('bye')\n", "SystemExit: bye"),
        ("\nraise RuntimeError('\\x1b[31mred\\n')\n", r"RuntimeError: \?\[31mred\?"),
        ("\nimport ctypes\nctypes.string_at(0)\n", "the child ended"),
        ("\nx = bytearray(1 << 40)\n", "MemoryError"),
        ("\ndef environment(seed, args): return 7\n", "AttributeError"),
        ("\ndel environment\n", "AttributeError"),
        ("\nimport no_such_module\n", "ModuleNotFoundError"),
    ],
)
def test_what_goes_wrong_at_import_is_our_fault_in_bounded_time(tmp_path: Path, hostile: str, message: str) -> None:
    times = GuestTimes(load_s=1.0 if "longer" in message else 20.0)
    with pytest.raises(OurFault, match=message):
        guest(tmp_path / "package", hostile, times)


FORGERIES = {
    "an answer before the question": b'{"id": 2, "value": {"reward": 1.0}}',
    "an answer to another question": b'{"id": 77, "value": null}',
    "no answer": b"{}",
    "no JSON": b"\xff\xfe",
    "nothing": b"",
    "deep JSON": b"[" * 100_000,
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_frames_end_the_child_and_are_no_answer(tmp_path: Path, forged: bytes) -> None:
    code = f"\nimport os, struct\nos.write(3, struct.pack('>I', {len(forged)}) + {forged!r})\n"
    with pytest.raises(OurFault, match=r"an answer|no JSON|cannot be read"):
        guest(tmp_path / "package", code)


def test_a_grade_under_another_id_is_no_answer(tmp_path: Path) -> None:
    forged = b'{"id": 1, "value": {"reward": 9.0}}'
    code = "\nimport os, struct\n\n\ndef reward(task, completion):\n"
    code += f"    os.write(3, struct.pack('>I', {len(forged)}) + {forged!r})\n    return 0.0\n"
    env = guest(tmp_path / "package", code)
    with pytest.raises(OurFault, match="an answer to question 1 where"):
        env.grade(env.task("train", 0), "x")


def test_frames_that_are_never_finished_do_not_hang_the_host(tmp_path: Path) -> None:
    code = (
        "\nimport os, time\n\n\ndef reward(task, completion):\n    os.write(3, b'\\0\\0\\1\\0xx')\n    time.sleep(60)\n"
    )
    env = guest(tmp_path / "package", code)
    task = env.task("train", 0)
    with pytest.raises(OurFault, match="grade took longer than 2 s"):
        env.grade(task, "x")
    assert env.task("train", 0) == task  # another child


def test_huge_frames_and_answers_are_refused(tmp_path: Path) -> None:
    flood = (
        "\n\ndef reward(task, completion):\n    import os\n    os.write(3, b'\\xff\\xff\\xff\\xff')\n    return 1.0\n"
    )
    env = guest(tmp_path / "flood", flood)
    with pytest.raises(OurFault, match="grade: the child ended"):
        env.grade(env.task("train", 0), "x")
    huge = guest(tmp_path / "huge", "\n\ndef report(number):\n    return 'x' * (9 << 20)\n")
    with pytest.raises(OurFault, match="task: the child ended"):
        huge.task("train", 0)


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "'1e999'", "'many'", "[1]", "10 ** 400", "{'a': 1}"])
def test_a_reward_that_is_no_number_is_no_grade(tmp_path: Path, value: str) -> None:
    code = "\nfrom farflung.envs.base import Grade\n"
    code += f"SimpleEnvironment.grade = lambda self, task, completion: Grade(reward={value})\n"
    env = guest(tmp_path / "package", code)
    try:
        grade = env.grade(env.task("train", 0), "x")
    except (OurFault, ValueError):
        return
    assert grade.reward is None


def test_grades_under_thousands_of_names_are_refused(tmp_path: Path) -> None:
    code = "\nfrom farflung.envs.base import Grade\nSimpleEnvironment.grade = lambda self, task, completion: "
    code += "Grade(reward=1.0, components={str(n): 0.0 for n in range(5000)})\n"
    env = guest(tmp_path / "package", code)
    with pytest.raises(OurFault, match="5000 components"):
        env.grade(env.task("train", 0), "x")


def test_a_task_of_another_environment_is_refused(tmp_path: Path) -> None:
    code = "\nfrom msgspec.structs import replace\nmake = SimpleEnvironment.task\n"
    code += "SimpleEnvironment.task = lambda *args: replace(make(*args), env='sort-digits')\n"
    env = guest(tmp_path / "package", code)
    with pytest.raises(OurFault, match="gave a task of sort-digits"):
        env.task("train", 0)


def test_a_hang_in_grading_is_over_soon_and_the_next_task_is_graded(tmp_path: Path) -> None:
    code = "\n\ndef reward(task, completion):\n    while completion == 'hang': pass\n    return 1.0\n"
    env = guest(tmp_path / "package", code, GuestTimes(load_s=20.0, answer_s=1.0))
    task = env.task("train", 0)
    with pytest.raises(OurFault, match="grade took longer than 1 s"):
        env.grade(task, "hang")
    assert env.grade(task, "fine").reward == 1.0


def test_a_child_that_died_is_asked_again_once(tmp_path: Path) -> None:
    code = "\n\ndef reward(task, completion):\n    import os\n    os._exit(1)\n"
    env = guest(tmp_path / "package", code)
    with pytest.raises(OurFault, match="grade: the child ended"):
        env.grade(env.task("train", 0), "x")


def test_printing_without_end_is_of_no_consequence(tmp_path: Path) -> None:
    env = guest(tmp_path / "package", "\n\ndef reward(task, completion):\n    print('x' * (1 << 22))\n    return 1.0\n")
    assert env.grade(env.task("train", 0), "x").reward == 1.0


def test_an_environment_may_not_change_its_description(tmp_path: Path) -> None:
    code = "\nimport time\nfirst = SimpleEnvironment.__init__\n\n\ndef begin(self, **settings):\n"
    code += "    first(self, **{**settings, 'num_tasks': 50 + time.monotonic_ns() % 100000})\n\n\n"
    code += "SimpleEnvironment.__init__ = begin\n\n\ndef reward(task, completion):\n    import os\n    os._exit(1)\n"
    env = guest(tmp_path / "package", code)
    with pytest.raises(OurFault, match="describes itself otherwise"):
        env.grade(env.task("train", 0), "x")
