"""A file of 400 MB from an origin through two relays to one client and to eight, beside `shardcast`, and beside nginx.

    FARFLUNG_BENCH_SHARDCAST=PYTHON python -m benchmarks broadcast      PYTHON has shardcast installed

FARFLUNG_BENCH_FOLDER says where all files lie, else the system's folder for temporary files. For eight clients it needs
8.4 GB; it is memory that limits where it lies in memory, and the disk where not.

broadcast/<n>-clients/wall      s from the call that publishes until the last client has the whole file, checked
broadcast/<n>-clients/cpu       CPU-s of all roles for it, the publishing process included
broadcast/<n>-clients/memory    MiB, the sum of the peaks of all roles above what they held before
broadcast/origin/throughput     MB/s of an origin, one client; the peer is nginx | curl | sha256sum

All processes run, and wait, before the clock starts. Ours are the real coordinator, `farflung relay` and the client of
`benchmarks.broadcast_client`; theirs are shardcast's programs with its default shards of 50 MB, their relays looking
for versions once a second instead of every 30, and each client with a copy of the package of its own, since clients of
one machine would share a temporary file inside it.
"""

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.broadcast_client import download
from benchmarks.process_cpu import tree_cpu_s
from benchmarks.process_memory import descendants
from benchmarks.record import record
from farflung.api.client import CoordinatorClient
from farflung.broadcast.publish import prepare, publish
from farflung.identity.keys import key_from_bytes
from farflung.identity.signing import sign
from farflung.wire.manifest import Manifest, Publication
from farflung.wire.node import Role

NUM_BYTES = 400_000_000
NUM_ROUNDS = 3
TRAINER = key_from_bytes(b"\x05" * 32)
WEIGHTS = "model.safetensors"
PATIENCE_S = 300.0
PEER_PATIENCE_S = {1: 60.0, 8: 240.0}
"""By clients. Ours gets no shorter one."""
NUM_TRIES = 4
FARFLUNG = (sys.executable, "-P", "-m", "farflung.cli.main")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Of one way of a file."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run() -> None:
    for num_clients in (1, 8):
        distribution(num_clients)
    throughput()


def distribution(num_clients: int) -> None:
    """Ours and theirs in turn."""
    peer = os.environ.get("FARFLUNG_BENCH_SHARDCAST", "")
    mine: list[Cost] = []
    peers: list[Cost] = []
    num_stuck = 0
    with temporary_file() as file:
        for number in range(NUM_ROUNDS):
            mine.append(ours(file.with_name(f"ours-{number}"), file, num_clients))
            print("ours", num_clients, mine[-1], flush=True)
            if peer:
                cost, missed = theirs_that_ended(file.with_name(f"theirs-{number}"), file, num_clients, peer)
                peers.append(cost)
                num_stuck += missed
                print("shardcast", num_clients, cost, flush=True)
    _record(num_clients, mine, peers, num_stuck)


def theirs_that_ended(folder: Path, file: Path, num_clients: int, peer: str) -> tuple[Cost, int]:
    """And how many times before it a client had not ended in time: one that gets no list of versions guesses."""
    for number in range(NUM_TRIES):
        try:
            return theirs(folder / str(number), file, num_clients, peer), number
        except TimeoutError:
            print("shardcast: a client is stuck, again", flush=True)
            shutil.rmtree(folder)
    raise TimeoutError(f"shardcast did not bring the file in {NUM_TRIES} tries")


@contextmanager
def temporary_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("FARFLUNG_BENCH_FOLDER")) as folder:
        file = Path(folder) / "weights.bin"
        file.write_bytes(secrets.token_bytes(NUM_BYTES))
        yield file


# -- ours -----------------------------------------------------------------------------------------------------------


def ours(folder: Path, file: Path, num_clients: int, num_relays: int = 2) -> Cost:
    with ExitStack() as stack:
        url, root, started = coordinator(stack, folder)
        roles = [started]
        relays = []
        for number in range(num_relays):
            relay = free_port()
            words = [
                "relay",
                "--upstream",
                url,
                f"--relay.port={relay}",
                f"--relay.folder={folder / f'relay-{number}'}",
            ]
            roles.append(stack.enter_context(process([*FARFLUNG, *words])))
            wait_for(lambda relay=relay: is_listening(relay))  # type: ignore[misc]
            relays.append(f"http://127.0.0.1:{relay}")
        clients = []
        for number in range(num_clients):
            at = folder / f"client-{number}"
            words = ["-m", "benchmarks.broadcast_client", str(at), url, *relays]
            clients.append(stack.enter_context(process([sys.executable, *words])))
            wait_for((at / "ready").exists)
        token = (root / "tokens" / "trainer").read_text().strip()
        data = file.read_bytes()
        cost = measured([*roles, *clients], clients, lambda: asyncio.run(publish_file(url, token, data)))
        for number in range(num_clients):
            check((folder / f"client-{number}" / WEIGHTS), file)
    shutil.rmtree(folder)
    return cost


def origin_s(folder: Path, file: Path) -> float:
    """Seconds from a client's first question to the whole file on its disk, checked. Published before."""
    with ExitStack() as stack:
        url, root, _ = coordinator(stack, folder)
        asyncio.run(publish_file(url, (root / "tokens" / "trainer").read_text().strip(), file.read_bytes()))
        started_s = time.perf_counter()
        asyncio.run(download(folder / "client", url, []))
        took_s = time.perf_counter() - started_s
        check(folder / "client" / WEIGHTS, file)
    shutil.rmtree(folder)
    return took_s


def coordinator(stack: ExitStack | AsyncExitStack, folder: Path) -> tuple[str, Path, "subprocess.Popen[bytes]"]:
    """Its address, its run folder and the process."""
    port, root = free_port(), folder / "runs" / "broadcast"
    words = [
        "coordinator",
        "demo",
        f"--run.dir={folder / 'runs'}",
        "--run.name=broadcast",
        f"--coordinator.port={port}",
    ]
    started = stack.enter_context(process([*FARFLUNG, *words]))
    wait_for(lambda: (root / "tokens" / "trainer").exists() and is_listening(port))
    return f"http://127.0.0.1:{port}", root, started


async def publish_file(url: str, token: str, data: bytes) -> None:
    async with CoordinatorClient(url, node="trainer", role=Role.TRAINER, token=token) as client:
        now_ms = int(time.time() * 1000)
        prepared = prepare(
            {WEIGHTS: data},
            tensors=(),
            pool_digest=(await client.pool()).digest(),
            policy_version=0,
            optimizer_step=0,
            published_at_ms=now_ms,
            expires_at_ms=now_ms + 3_600_000,
        )
        signed = sign(prepared.manifest, TRAINER)

        async def put_manifest(manifest: Manifest) -> None:
            await client.publish(Publication(manifest=manifest))

        await publish(replace(prepared, manifest=signed), client.put_chunk, put_manifest)


# -- the peers ------------------------------------------------------------------------------------------------------


def theirs(folder: Path, file: Path, num_clients: int, python: str, num_relays: int = 2) -> Cost:
    script = str(Path(__file__).with_name("shardcast_peer.py"))
    with ExitStack() as stack:
        port = free_port()
        origin_at = _with_dummy(folder / "origin")
        origin = stack.enter_context(process([python, script, "origin", str(origin_at), str(port), str(file)]))
        wait_for((origin_at / "ready").exists)
        roles, ports = [origin], []
        for number in range(num_relays):
            relay, at = free_port(), _with_dummy(folder / f"relay-{number}")
            program = str(Path(python).with_name("shardcast-middle"))
            words = ["--upstream", f"http://127.0.0.1:{port}", "--port", str(relay), "--data-dir", str(at)]
            roles.append(stack.enter_context(process([program, *words, "--check-interval", "1"])))
            wait_for(lambda relay=relay: is_listening(relay))  # type: ignore[misc]
            ports.append(str(relay))
        clients = []
        for number in range(num_clients):
            at = folder / f"client-{number}"
            copy = _copy_of_package(python, folder / f"package-{number}")
            clients.append(stack.enter_context(process([python, script, "client", str(at), *ports], copy)))
            wait_for((at / "ready").exists)
        time.sleep(1.0)

        def broadcast() -> None:
            assert origin.stdin is not None
            origin.stdin.write(b"\n")
            origin.stdin.flush()

        cost = measured([*roles, *clients], clients, broadcast, PEER_PATIENCE_S[num_clients])
        for number in range(num_clients):
            check(folder / f"client-{number}" / "download_v1.bin", file)
    shutil.rmtree(folder)
    return cost


def nginx_s(folder: Path, file: Path) -> float | None:
    """Seconds of nginx | curl | sha256sum for the file; None where one of them is missing."""
    if any(shutil.which(program) is None for program in ("nginx", "curl", "sha256sum")):
        return None
    port, at = free_port(), folder / "nginx"
    (at / "www").mkdir(parents=True)
    (at / "www" / "weights.bin").symlink_to(file)
    (at / "nginx.conf").write_text(
        f"user root; daemon off; pid {at}/pid; error_log {at}/error; events {{}}\n"
        f"http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root {at}/www; }} }}\n"
    )
    with process(["nginx", "-c", str(at / "nginx.conf"), "-p", str(at)]):
        wait_for(lambda: is_listening(port))
        line = f"curl -s http://127.0.0.1:{port}/weights.bin | tee {at}/got | sha256sum"
        started_s = time.perf_counter()
        subprocess.run(["bash", "-c", line], check=True, stdout=subprocess.DEVNULL)
        took_s = time.perf_counter() - started_s
        check(at / "got", file)
    shutil.rmtree(at)
    return took_s


def _copy_of_package(python: str, folder: Path) -> str:
    found = subprocess.run(
        [python, "-c", "import shardcast; print(shardcast.__path__[0])"], check=True, capture_output=True, text=True
    )
    shutil.copytree(found.stdout.strip(), folder / "shardcast")
    return str(folder)


def _with_dummy(folder: Path) -> Path:
    """Every server of shardcast must have this file: clients time it to know how fast the server is."""
    folder.mkdir(parents=True)
    (folder / "data1.bin").write_bytes(bytes(1_000_000))
    return folder


# -- figures --------------------------------------------------------------------------------------------------------


def _record(num_clients: int, ours: Sequence[Cost], theirs: Sequence[Cost], num_stuck: int) -> None:
    name, version = f"broadcast/{num_clients}-clients", "shardcast 0.3.2" if theirs else None
    for what, unit in (("wall", "s"), ("cpu", "CPU-s"), ("memory", "MiB")):
        field = {"wall": "wall_s", "cpu": "cpu_s", "memory": "peak_mib"}[what]
        mine = [getattr(cost, field) for cost in ours]
        peers = [getattr(cost, field) for cost in theirs]
        load = os.getloadavg()[0]
        detail = {
            "rounds": {"ours": mine, "peer": peers},
            "rounds of the peer that were stopped as too long and tried again": num_stuck,
            "bytes": NUM_BYTES,
            "files": _file_system(),
            "load": load,
        }
        record(f"{name}/{what}", median(mine), median(peers) if peers else None, version, unit, detail)


def _file_system() -> str:
    folder = os.environ.get("FARFLUNG_BENCH_FOLDER") or tempfile.gettempdir()
    told = subprocess.run(["stat", "-f", "-c", "%T", folder], check=True, capture_output=True, text=True)
    return told.stdout.strip()


def throughput() -> None:
    """One origin, one client, no relay; publishing is not counted."""
    mine, peers = [], []
    with temporary_file() as file:
        for number in range(2 * NUM_ROUNDS):
            mine.append(NUM_BYTES / 1e6 / origin_s(file.with_name(f"origin-{number}"), file))
            took_s = nginx_s(file.with_name(f"nginx-{number}"), file)
            if took_s is not None:
                peers.append(NUM_BYTES / 1e6 / took_s)
            print("origin", mine[-1], "nginx", peers[-1:], flush=True)
    if not peers:
        print("no peer: nginx, curl or sha256sum is not installed")
    detail = {"rounds": {"ours": mine, "peer": peers}, "files": _file_system(), "load": os.getloadavg()[0]}
    version = "nginx, curl and sha256sum" if peers else None
    record("broadcast/origin/throughput", median(mine), median(peers) if peers else None, version, "MB/s", detail)


# -- measuring ------------------------------------------------------------------------------------------------------


def measured(
    roles: Sequence["subprocess.Popen[bytes]"],
    clients: Sequence["subprocess.Popen[bytes]"],
    go: Callable[[], None],
    patience_s: float = PATIENCE_S,
) -> Cost:
    """From `go` until the last client has ended well."""
    cpu_before = {role.pid: tree_cpu_s(role.pid) for role in roles}
    held_before = {role.pid: peak_kib(role.pid) for role in roles}
    used_here, started_s = time.process_time(), time.perf_counter()
    go()
    cpu_after: dict[int, float] = {}
    peaks: dict[int, int] = dict(held_before)
    running = set(clients)
    while running:
        for client in list(running):
            peaks[client.pid] = max(peaks[client.pid], peak_kib(client.pid))
            cpu_after[client.pid] = max(cpu_after.get(client.pid, 0.0), tree_cpu_s(client.pid))
            if client.poll() is not None:
                assert client.returncode == 0, f"a client ended with code {client.returncode}"
                running.remove(client)
        if time.perf_counter() - started_s > patience_s:
            raise TimeoutError("the clients did not end")
        time.sleep(0.01)
    wall_s = time.perf_counter() - started_s
    for role in roles:
        if role not in clients:
            cpu_after[role.pid] = tree_cpu_s(role.pid)
            peaks[role.pid] = peak_kib(role.pid)
    cpu_s = sum(cpu_after[pid] - before for pid, before in cpu_before.items()) + time.process_time() - used_here
    grown_kib = sum(max(0, peaks[pid] - before) for pid, before in held_before.items())
    return Cost(wall_s=wall_s, cpu_s=cpu_s, peak_mib=grown_kib / 1024)


def peak_kib(pid: int) -> int:
    """Largest resident size so far of a process and of those below it that run."""
    total = 0
    for one in (pid, *descendants(pid)):
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return total


@contextmanager
def process(words: Sequence[str], path: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, **({"PYTHONPATH": path} if path else {})}
        started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        try:
            yield started
        finally:
            started.kill()
            started.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(ask: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not ask():
        if time.monotonic() > deadline_s:
            raise TimeoutError("a role did not start")
        time.sleep(0.02)


def check(got: Path, sent: Path) -> None:
    with got.open("rb") as one, sent.open("rb") as other:
        while piece := one.read(1 << 24):
            assert piece == other.read(1 << 24), f"{got} differs"
        assert not other.read(1)


if __name__ == "__main__":
    run()
