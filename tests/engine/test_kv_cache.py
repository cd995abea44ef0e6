"""The cache against attention written out: rows of different lengths, growing, shrinking, moving."""

import torch
from torch import Tensor

from farflung.engine.kv_cache import COLUMN_MULTIPLE, KVCache
from farflung.model.config import ModelConfig

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, NUM_LAYERS = 4, 2, 32, 2
CONFIG = ModelConfig(
    vocab_size=8, hidden_size=16, intermediate_size=8, num_layers=NUM_LAYERS, num_heads=NUM_HEADS,
    num_kv_heads=NUM_KV_HEADS, head_dim=HEAD_DIM,
)  # fmt: skip


def new_cache(num_rows: int = 4) -> KVCache:
    return KVCache(CONFIG, num_rows=num_rows, max_columns=200, dtype=torch.float32, device=torch.device("cpu"))


def random_heads(*shape: int, seed: int) -> Tensor:
    """[..., H + 2K, d] as `DecoderLayer.heads` makes them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM, generator=generator)


def attention(query_Hd: Tensor, kv_TKd: Tensor) -> Tensor:
    """One row's attention over its T tokens: [H * d]."""
    keys, values = kv_TKd.split(NUM_KV_HEADS, dim=1)
    outputs = []
    for head in range(NUM_HEADS):
        shared = head // (NUM_HEADS // NUM_KV_HEADS)
        weights = torch.softmax(keys[:, shared] @ query_Hd[head] / HEAD_DIM**0.5, dim=0)
        outputs.append(weights @ values[:, shared])
    return torch.cat(outputs)


class Rows:
    """The same rows as plain lists, tokens [T, 2K, d] per row and layer: what the cache must behave like."""

    def __init__(self, cache: KVCache) -> None:
        self.cache, self.tokens = cache, list[list[Tensor]]()

    def insert(self, prompts: list[Tensor]) -> None:
        """Prompts [layers, T, 2K, d] join."""
        lengths = [prompt.shape[1] for prompt in prompts]
        starts = [sum(lengths[:index]) for index in range(len(lengths))]
        longest = max(lengths)
        index_AP = torch.tensor(
            [[start + min(i, n - 1) for i in range(longest)] for start, n in zip(starts, lengths, strict=True)]
        )
        self.cache.reserve(max([longest, *(len(row[0]) for row in self.tokens)]))
        self.cache.insert(len(self.tokens), torch.cat(prompts, dim=1), index_AP)
        self.tokens += [list(prompt) for prompt in prompts]

    def step(self, seed: int) -> None:
        """Append a token to every row and compare what attention returns."""
        lengths = torch.tensor([len(row[0]) for row in self.tokens])
        self.cache.reserve(int(lengths.max()) + 1)
        self.cache.begin_step(lengths)
        for layer in range(NUM_LAYERS):
            heads = random_heads(len(self.tokens), seed=seed * NUM_LAYERS + layer)
            for row, own in zip(self.tokens, heads, strict=True):
                row[layer] = torch.cat((row[layer], own[None, NUM_HEADS:]))
            expected = [attention(own[:NUM_HEADS], row[layer]) for row, own in zip(self.tokens, heads, strict=True)]
            torch.testing.assert_close(self.cache.attend(layer, heads), torch.stack(expected), rtol=0, atol=2e-6)


def prompt(length: int, seed: int) -> Tensor:
    return random_heads(NUM_LAYERS, length, seed=seed)[:, :, NUM_HEADS:]


def test_rows_of_different_lengths_attend_to_their_own_tokens_as_the_cache_grows() -> None:
    rows = Rows(new_cache())
    rows.insert([prompt(3, 1), prompt(14, 2), prompt(1, 3)])
    for seed in range(2 * COLUMN_MULTIPLE + 3):
        rows.step(seed)


def test_rows_survive_a_join_a_move_and_a_shrinking_cache() -> None:
    rows = Rows(new_cache())
    rows.insert([prompt(100, 1), prompt(4, 2)])
    rows.step(10)
    rows.insert([prompt(2, 3), prompt(9, 4)])
    rows.step(11)
    rows.cache.move(torch.tensor([0]), torch.tensor([3]))  # the long row ended
    rows.tokens[0] = rows.tokens.pop()
    for seed in range(12, 16):
        rows.step(seed)


def test_a_restarted_cache_knows_nothing_of_its_past() -> None:
    cache = new_cache()
    rows = Rows(cache)
    rows.insert([prompt(90, 1), prompt(90, 2)])
    rows.step(5)
    cache.restart()
    rows = Rows(cache)
    rows.insert([prompt(2, 3)])
    rows.step(6)
