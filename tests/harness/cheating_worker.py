"""A worker process with the real protocol and one lie: python cheating_worker.py CHEAT URL

weights    samples with int4 weights
draws      samples with randomness of its own, until it likes the answers
"""

import asyncio
import sys
from collections.abc import Callable, Mapping

from torch import Tensor

from farflung.engine.torch_engine import TorchEngine
from farflung.validator.impostors import quantised
from farflung.worker import service
from farflung.worker.config import WorkerConfig

RealLoad = Callable[[TorchEngine, Mapping[str, Tensor], int], None]


def lie_about_weights() -> None:
    load: RealLoad = TorchEngine.load_weights
    make_int4 = quantised(7)

    def load_int4(engine: TorchEngine, state: Mapping[str, Tensor], policy_version: int) -> None:
        _, changed = make_int4(engine._config, {name: tensor.float() for name, tensor in state.items()})
        load(engine, changed, policy_version)

    def update(engine: TorchEngine, state: Mapping[str, Tensor], changed: object, policy_version: int) -> None:
        load_int4(engine, state, policy_version)

    TorchEngine.load_weights = load_int4  # type: ignore[method-assign, assignment]
    TorchEngine.update_weights = update  # type: ignore[method-assign, assignment]


def lie_about_draws() -> None:
    generate = TorchEngine.generate

    def generate_anew(
        engine: TorchEngine, requests: object, params: object, draw_seed: bytes, **rest: object
    ) -> object:
        return generate(engine, requests, params, bytes(byte ^ 0xFF for byte in draw_seed), **rest)  # type: ignore[arg-type]

    TorchEngine.generate = generate_anew  # type: ignore[method-assign, assignment]


LIES = {"weights": lie_about_weights, "draws": lie_about_draws}

if __name__ == "__main__":
    LIES[sys.argv[1]]()
    asyncio.run(service.run(WorkerConfig(heartbeat_s=0.5), url=sys.argv[2], stop=asyncio.Event()))
