"""One causal decoder for engine, trainer and verifier: pre-norm RMSNorm, rotary GQA attention, SwiGLU.

    h = embed(tokens)
    h = h + W_o attention(rope(W_qkv norm(h)));  h = h + W_down(silu(W_gate norm(h)) * W_up norm(h))     per layer
    hidden = final_norm(h)

All projections run on flat [N, d] tensors of concatenated documents without padding; only attention pads. A decode
loop calls the same methods (`embed`, `rotations`, `layer.heads`, `layer.attention_output`, `layer.mlp`, `final_norm`)
and brings its own attention over its cache, so the arithmetic of a token is the same everywhere.

Letters: N tokens, D hidden size, H query heads, K key/value heads, d head size, c = d / 2 complex numbers.
Knows no files, no losses, no sampling.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from farflung.errors import OurFault
from farflung.model.config import ModelConfig
from farflung.model.layout import SequenceLayout
from farflung.model.norm import RMSNorm
from farflung.model.rope import RopeTable, apply_rope_


class Projection(nn.Module):
    """`x W^T + b`; zero until weights are loaded."""

    def __init__(self, num_in: int, num_out: int, dtype: torch.dtype, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_out, num_in, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(num_out, dtype=dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class DecoderLayer(nn.Module):
    """One block. Each method takes and returns the residual stream where it says `hidden`."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        size, eps = config.hidden_size, config.rms_norm_eps
        num_qkv = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        self.input_norm = RMSNorm(size, eps, dtype)
        self.qkv_proj = Projection(size, num_qkv, dtype, bias=config.attention_bias)
        self.q_norm = RMSNorm(config.head_dim, eps, dtype) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, eps, dtype) if config.qk_norm else None
        self.o_proj = Projection(config.num_heads * config.head_dim, size, dtype, bias=config.attention_output_bias)
        self.mlp_norm = RMSNorm(size, eps, dtype)
        self.gate_proj = Projection(size, config.intermediate_size, dtype)
        self.up_proj = Projection(size, config.intermediate_size, dtype)
        self.down_proj = Projection(config.intermediate_size, size, dtype)

    def heads(self, hidden_ND: Tensor, rotation_Nc: Tensor) -> Tensor:
        """Rotated queries, rotated keys and values of the residual stream, side by side: [N, H + 2K, d]."""
        heads_NHd: Tensor = self.qkv_proj(self.input_norm(hidden_ND)).view(len(hidden_ND), -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            query, key, value = self.split_heads(heads_NHd, dim=1)
            heads_NHd = torch.cat((self.q_norm(query), self.k_norm(key), value), dim=1)
        apply_rope_(heads_NHd[:, : self.num_heads + self.num_kv_heads], rotation_Nc)
        return heads_NHd

    def split_heads(self, heads: Tensor, *, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """Views of the queries, keys and values in what `heads` returned."""
        query, key, value = torch.split(heads, [self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=dim)
        return query, key, value

    def attention_output(self, hidden_ND: Tensor, attended_NHd: Tensor) -> Tensor:
        """Residual stream plus the projected [N, H, d] attention results."""
        residual: Tensor = hidden_ND + self.o_proj(attended_NHd.reshape(len(hidden_ND), -1))
        return residual

    def mlp(self, hidden_ND: Tensor) -> Tensor:
        """Residual stream plus the gated MLP."""
        # Two products, not one fused: the halves of a fused result are strided, and its gradient is a copy of both.
        normed_ND = self.mlp_norm(hidden_ND)
        residual: Tensor = hidden_ND + self.down_proj(F.silu(self.gate_proj(normed_ND)) * self.up_proj(normed_ND))
        return residual

    def attend(self, heads_NHd: Tensor, layout: SequenceLayout) -> Tensor:
        """Causal attention inside each document: [N, H, d] from `heads`.

        Right padding needs no mask: a real token never looks to its right.
        """
        attended = []
        for bucket, cells in zip(layout.buckets, layout.pad(heads_NHd), strict=True):
            query, key, value = self.split_heads(cells.transpose(1, 2), dim=1)
            result = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=self.num_heads != self.num_kv_heads
            )
            attended.append(result.transpose(1, 2).reshape(bucket.num_cells, self.num_heads, self.head_dim))
        return layout.unpad(attended)

    def forward(self, hidden_ND: Tensor, rotation_Nc: Tensor, layout: SequenceLayout) -> Tensor:
        hidden_ND = self.attention_output(hidden_ND, self.attend(self.heads(hidden_ND, rotation_Nc), layout))
        return self.mlp(hidden_ND)


class Decoder(nn.Module):
    """The whole model. A fresh one has zero projections: load weights with `weights.load_hf_state`."""

    def __init__(
        self, config: ModelConfig, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        """Raises OurFault: half precision on a CPU, which is a hundred times slower than float32 there."""
        super().__init__()
        if torch.device(device).type == "cpu" and dtype in (torch.bfloat16, torch.float16):
            raise OurFault(
                f"a decoder in {dtype} on a CPU: compute in float32 there, whatever the weights are stored in"
            )
        self.config = config
        self.embed_tokens = nn.Parameter(torch.zeros(config.vocab_size, config.hidden_size, dtype=dtype))
        layers = nn.ModuleList(DecoderLayer(config, dtype) for _ in range(config.num_layers))
        self.layers = cast("Sequence[DecoderLayer]", layers)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype)
        self.lm_head = (
            None
            if config.tie_word_embeddings
            else nn.Parameter(torch.zeros(config.vocab_size, config.hidden_size, dtype=dtype))
        )
        self.to(device)
        self._rope = RopeTable(config, dtype=dtype, device=device)

    @property
    def lm_head_weight(self) -> Tensor:
        """[V, D]; the embedding matrix itself when tied."""
        return self.embed_tokens if self.lm_head is None else self.lm_head

    def embed(self, tokens_N: Tensor) -> Tensor:
        """[N] ids -> [N, D] residual stream."""
        return F.embedding(tokens_N, self.embed_tokens)

    def rotations(self, positions_N: Tensor, num_positions: int) -> Tensor:
        """Complex [N, d / 2] for `layer.heads`, of positions below `num_positions`."""
        return self._rope.upto(num_positions).index_select(0, positions_N)

    def final_norm(self, hidden_ND: Tensor) -> Tensor:
        """Residual stream -> the states that the LM head and the proofs see."""
        normed: Tensor = self.norm(hidden_ND)
        return normed

    def forward(self, tokens_N: Tensor, layout: SequenceLayout) -> Tensor:
        """Post-final-norm states [N, D] of concatenated documents; row t predicts token t + 1 of its document."""
        hidden_ND = self.embed(tokens_N)
        rotation_Nc = self.rotations(layout.positions_N, layout.max_length)
        for layer in self.layers:
            hidden_ND = layer(hidden_ND, rotation_Nc, layout)
        return self.final_norm(hidden_ND)
