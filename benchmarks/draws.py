"""Drawing one token for each of 64 rows, with its logprob: seeded Gumbel-max against softmax and `torch.multinomial`.

Seeded draws are what makes sampling verifiable, so they must not cost more than the unseeded ones that they replace.
"""

from functools import partial

import torch
from torch import Tensor

from benchmarks.measure import alternate
from benchmarks.record import record
from farflung.engine.noise_ahead import NoiseAhead
from farflung.proofs.draws import draw

NUM_ROWS = 64
ROUNDS = 15


def run() -> None:
    """The demo's vocabulary and one of 49,152 ids."""
    torch.set_num_threads(1)
    for vocab_size, num_steps in ((64, 64), (49_152, 2)):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(NUM_ROWS, vocab_size, generator=generator)
        keys = torch.randint(-(2**31), 2**31 - 1, (NUM_ROWS * num_steps, 2), dtype=torch.int32, generator=generator)
        ours = partial(_seeded, logits, keys, num_steps)
        ours_s, peer_s = alternate(ours, partial(_unseeded, logits, num_steps), rounds=ROUNDS, repeats=1)
        drawn = NUM_ROWS * num_steps
        detail = {"us_per_draw": f"{ours_s / drawn * 1e6:.2f}"}
        entry = record(
            f"draws/vocabulary-{vocab_size}",
            drawn / ours_s,
            drawn / peer_s,
            f"torch.multinomial {torch.__version__}",
            "draws/CPU-s",
            detail,
        )
        print(f"{entry['name']}: {entry['ours']:,g} against {entry['peer']:,g} = {entry['ratio']:.2f}x", flush=True)


def _seeded(logits: Tensor, keys: Tensor, num_steps: int) -> None:
    noise = NoiseAhead(keys, num_rows=NUM_ROWS, vocab_size=logits.shape[1])
    cells = torch.arange(NUM_ROWS) * num_steps
    for step in range(num_steps):
        draw(logits, noise.take(cells + step))


def _unseeded(logits: Tensor, num_steps: int) -> None:
    for _ in range(num_steps):
        logprobs = torch.log_softmax(logits, dim=-1)
        logprobs.gather(-1, torch.multinomial(logprobs.exp(), 1))
