"""What the HTTP server costs beside the bare engine: tokens per CPU-second at the same requests, on SmolLM2-135M.

`farflung serve` in a process of its own, whose whole CPU time counts; clients here, whose time does not. The bare
engine is the server's own (`LiveBatch`) in a loop, fed the same ids, seeds and limits: a client's next request joins
when its last has ended. Both draw the same tokens, which is checked. 1 and 16 clients, streaming and not, with
logprobs: a request has 40 prompt tokens and at most 64 new ones. Rounds alternate and the median counts.
About four minutes.

    python -m benchmarks serving
    python -m benchmarks.serving 16-clients        some of the cases
"""

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

from benchmarks import report
from benchmarks.load import shared_machine
from benchmarks.measure import cpu_time
from benchmarks.process_cpu import tree_cpu_s
from benchmarks.record import record
from benchmarks.smollm2 import PATH, smollm2
from farflung.engine.live import LiveBatch, LiveRequest
from farflung.serving.config import ServeConfig
from farflung.serving.model import ServedModel, load_served

NUM_PROMPT, NUM_NEW = 40, 64
CONFIG = ServeConfig(max_concurrency=16, max_context_tokens=256)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    num_clients: int
    requests_each: int
    stream: bool
    rounds: int


CASES = {
    "one-client": Case(num_clients=1, requests_each=1, stream=False, rounds=5),
    "one-client-streaming": Case(num_clients=1, requests_each=1, stream=True, rounds=5),
    "16-clients": Case(num_clients=16, requests_each=2, stream=False, rounds=3),
    "16-clients-streaming": Case(num_clients=16, requests_each=2, stream=True, rounds=3),
}
Client = list[dict[str, Any]]
"""Bodies that one client sends, one after another."""


def run(names: Sequence[str] = ()) -> None:
    """Measure the named cases, or all, and record them."""
    smollm2()
    model, batch = load_served(PATH, CONFIG)
    with _server() as (pid, url):
        for name in names or CASES:
            _measure(name, CASES[name], model, batch, pid, url)


@contextmanager
def _server() -> Iterator[tuple[int, str]]:
    """Process id and URL of a server."""
    settings = [f"--serve.{key}={getattr(CONFIG, key)}" for key in ("max_concurrency", "max_context_tokens")]
    command = [sys.executable, "-m", "farflung.cli.main", "serve", str(PATH), "--serve.port=0", *settings]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert server.stdout is not None
    try:
        found = re.search(r"http://\S+", server.stdout.readline())
        if found is None:
            raise RuntimeError("the server did not start")
        yield server.pid, found.group()
    finally:
        server.terminate()
        server.wait()


def _measure(name: str, case: Case, model: ServedModel, batch: LiveBatch, pid: int, url: str) -> None:
    clients = [
        [_body(case, model, client, number) for number in range(case.requests_each)]
        for client in range(case.num_clients)
    ]
    reference: list[int] = []

    def bare() -> None:
        reference[:] = _bare(model, batch, clients)

    def served() -> float:
        before_s = tree_cpu_s(pid)
        counts = asyncio.run(_served(url, clients))
        if counts != reference:
            raise RuntimeError(f"the server drew {counts} tokens, the bare engine {reference}")
        return tree_cpu_s(pid) - before_s

    bare(), served()
    times = [(cpu_time(bare), served()) for _ in range(case.rounds)]
    bare_s, served_s = (statistics.median(column) for column in zip(*times, strict=True))
    num_tokens = sum(reference)
    detail = {
        "overhead": f"{served_s / bare_s - 1:.1%}",
        "rounds": ", ".join(f"{served / bare - 1:.1%}" for bare, served in times),
        "completion_tokens": num_tokens,
        **shared_machine(),
    }
    entry = record(
        f"serving/{name}", num_tokens / served_s, num_tokens / bare_s, "the bare engine", "tokens/CPU-s", detail
    )
    print(f"{entry['name']}: {entry['ours']:g} against {entry['peer']:g} = {entry['ratio']:.3f}x; {detail}", flush=True)


def _body(case: Case, model: ServedModel, client: int, number: int) -> dict[str, Any]:
    seed = client * case.requests_each + number
    return {
        "model": model.name,
        "prompt": np.random.default_rng(seed).integers(100, model.config.vocab_size, NUM_PROMPT).tolist(),
        "max_tokens": NUM_NEW,
        "seed": seed,
        "logprobs": 0,
        "stream": case.stream,
    }


def _bare(model: ServedModel, batch: LiveBatch, clients: list[Client]) -> list[int]:
    """Tokens of each request, client by client."""
    left = [deque(enumerate(bodies)) for bodies in clients]
    counts = [[0] * len(bodies) for bodies in clients]
    running: dict[int, tuple[int, int]] = {}

    def send_next(client: int) -> None:
        if left[client]:
            number, body = left[client].popleft()
            running[batch.add(_live(model, body))] = (client, number)

    for client in range(len(clients)):
        send_next(client)
    while running:
        for handle, token in batch.step().items():
            client, number = running[handle]
            counts[client][number] += 1
            if token.stop_reason is not None:
                del running[handle]
                send_next(client)
    return [count for of_client in counts for count in of_client]


def _live(model: ServedModel, body: dict[str, Any]) -> LiveRequest:
    return model.requests(
        body["prompt"],
        choices=range(1),
        max_tokens=body["max_tokens"],
        default_max_tokens=CONFIG.default_max_tokens,
        temperature=1.0,
        seed=body["seed"],
        num_top=0,
    )[0]


async def _served(url: str, clients: list[Client]) -> list[int]:
    """Tokens of each request, client by client."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        counts = await asyncio.gather(*(_client(session, url, bodies) for bodies in clients))
    return [count for of_client in counts for count in of_client]


async def _client(session: aiohttp.ClientSession, url: str, bodies: Client) -> list[int]:
    counts = []
    for body in bodies:
        async with session.post(f"{url}/completions", json=body) as response:
            response.raise_for_status()
            if not body["stream"]:
                counts.append((await response.json())["usage"]["completion_tokens"])
                continue
            lines = [line async for line in response.content if line.startswith(b"data: {")]
            chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines]
            counts.append(sum(len(chunk["choices"][0]["logprobs"]["tokens"]) for chunk in chunks))
    return counts


if __name__ == "__main__":
    run(sys.argv[1:])
    report.write()
