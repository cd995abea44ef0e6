"""A role of `shardcast` for `benchmarks.broadcast`, under the interpreter that has it.

    python shardcast_peer.py origin FOLDER PORT FILE     serves, and broadcasts FILE when a line comes on standard input
    python shardcast_peer.py client FOLDER PORT ...      looks for the first version twice a second and downloads it

Its own client leaves the looking to the caller. Each writes the file `ready` when it is.
"""

import sys
import time
from pathlib import Path

import shardcast  # type: ignore[import-not-found]
from shardcast.client_node import ClientNode  # type: ignore[import-not-found]

LOOK_S = 0.5


def origin(folder: Path, port: int, file: str) -> None:
    shardcast.initialize(str(folder), port)
    (folder / "ready").touch()
    sys.stdin.readline()
    shardcast.broadcast(file)
    sys.stdin.readline()


def client(folder: Path, ports: list[str]) -> None:
    node = ClientNode([f"http://127.0.0.1:{port}" for port in ports], str(folder))
    (folder / "ready").touch()
    while True:
        if "v1" in node.list_available_versions() and node.download_version("v1"):
            return
        time.sleep(LOOK_S)


if __name__ == "__main__":
    role, at = sys.argv[1], Path(sys.argv[2])
    at.mkdir(parents=True, exist_ok=True)
    if role == "origin":
        origin(at, int(sys.argv[3]), sys.argv[4])
    else:
        client(at, sys.argv[3:])
