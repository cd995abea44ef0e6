"""A running server over a tiny model."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from farflung.model.characters import character_tokenizer
from farflung.model.factory import random_state, tiny_config
from farflung.model.folder import save_folder
from farflung.serving.app import Server
from farflung.serving.config import ServeConfig
from farflung.serving.loop import EngineLoop
from farflung.serving.model import load_served

NAME = "tiny"
Start = Callable[..., Any]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / NAME
    tokenizer = character_tokenizer("abcdefghijklmnopqrstuvwxyz 0123456789.,>ThinkTB")
    config = tiny_config(tokenizer, hidden_size=16, num_heads=2, intermediate_size=16, num_layers=2)
    save_folder(path, config, random_state(config, 0, std=0.3), tokenizer.files)
    return path


@pytest.fixture
async def start(folder: Path) -> AsyncIterator[Start]:
    """Call it with settings to get a client."""
    running: list[tuple[TestClient, EngineLoop]] = []

    async def begin(**settings: Any) -> TestClient:
        config = ServeConfig(**{"max_context_tokens": 128, "default_max_tokens": 16, **settings})
        model, batch = load_served(folder, config)
        engine = EngineLoop(batch, max_waiting=config.max_waiting)
        client = TestClient(TestServer(Server(config, model, engine).app()))
        await client.start_server()
        running.append((client, engine))
        client.engine = engine  # type: ignore[attr-defined]
        return client

    yield begin
    for client, engine in running:
        await client.close()
        await engine.close()
