"""One causal decoder for engine, trainer and verifier: pre-norm RMSNorm, rotary GQA attention, gated MLP.

    h = embed(tokens)
    h = h + W_o attention(rope(W_qkv norm(h)));  h = h + W_down(act(W_gate norm(h)) * W_up norm(h))     per layer
    hidden = final_norm(h)

Families differ by configuration: biases, norms of heads (Qwen), norms on what joins the stream, scaled embeddings and
layers that look back a bounded number of tokens (Gemma).

All projections run on flat [N, d] tensors of concatenated documents without padding; only attention pads. A decode
loop calls the same methods (`embed`, `rotations`, `layer.heads`, `layer.attention_output`, `layer.mlp`, `final_norm`)
and brings its own attention over its cache, so the arithmetic of a token is the same everywhere.

Letters: N tokens, D hidden size, H query heads, K key/value heads, d head size, c = d / 2 complex numbers.
Knows no files, no losses, no sampling.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from farflung.errors import OurFault
from farflung.model.config import Activation, ModelConfig
from farflung.model.layout import SequenceLayout
from farflung.model.low_rank import LowRank
from farflung.model.norm import RMSNorm
from farflung.model.packed import can_pack, linear, pack
from farflung.model.rope import RopeTable, apply_rope_, inverse_frequencies, rotation_length
from farflung.model.varlen import attend_packed

_ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class Projection(nn.Module):
    """`x W^T + b`; zero until weights are loaded."""

    def __init__(self, num_in: int, num_out: int, dtype: torch.dtype, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_out, num_in, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(num_out, dtype=dtype)) if bias else None
        self.adapter: LowRank | None = None
        """Put here by `model.adapted`."""
        self._packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        output = linear(x, self.weight if self._packed is None else self._packed, self.bias)
        if self.adapter is not None:
            output = self.adapter(x, output)
        return output

    def pack(self) -> None:
        """Multiply by a packed copy from now on, where that is faster. The weight is NaN then, and takes no memory."""
        if can_pack(self.weight):
            self._packed = pack(self.weight)
            self.weight = nn.Parameter(
                self.weight.new_full((), torch.nan).expand(self.weight.shape), requires_grad=False
            )

    @property
    def is_packed(self) -> bool:
        """Whether the weight cannot be read or written now."""
        return self._packed is not None

    def unpack(self) -> None:
        """Make room for new weights again; the old ones are lost."""
        if self._packed is not None:
            self._packed = None
            self.weight = nn.Parameter(self.weight.new_empty(self.weight.shape), requires_grad=False)


class DecoderLayer(nn.Module):
    """One block. Each method takes and returns the residual stream where it says `hidden`."""

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.window = config.window_of(index)
        """Tokens that attention looks back over, the own one included; None = all."""
        self._scale = config.attention_scale
        self._activation = _ACTIVATIONS[config.activation]
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        size = config.hidden_size

        def norm(num: int) -> RMSNorm:
            return RMSNorm(num, config.rms_norm_eps, dtype, config.norm_offset)

        num_qkv = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        self.input_norm = norm(size)
        self.qkv_proj = Projection(size, num_qkv, dtype, bias=config.attention_bias)
        self.q_norm = norm(config.head_dim) if config.qk_norm else None
        self.k_norm = norm(config.head_dim) if config.qk_norm else None
        self.o_proj = Projection(config.num_heads * config.head_dim, size, dtype, bias=config.attention_output_bias)
        self.attention_output_norm = norm(size) if config.sandwich_norms else None
        self.mlp_norm = norm(size)
        self.gate_proj = Projection(size, config.intermediate_size, dtype)
        self.up_proj = Projection(size, config.intermediate_size, dtype)
        self.down_proj = Projection(config.intermediate_size, size, dtype)
        self.mlp_output_norm = norm(size) if config.sandwich_norms else None

    @property
    def projections(self) -> list[Projection]:
        return [self.qkv_proj, self.o_proj, self.gate_proj, self.up_proj, self.down_proj]

    def heads(self, hidden_ND: Tensor, rotation_Nc: Tensor | None) -> Tensor:
        """Rotated queries, rotated keys and values of the residual stream, side by side: [N, H + 2K, d].

        Args:
            rotation_Nc: this layer's of `Decoder.rotations`; None in a layer that knows no positions.
        """
        heads_NHd: Tensor = self.qkv_proj(self.input_norm(hidden_ND)).view(len(hidden_ND), -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            query, key, value = self.split_heads(heads_NHd, dim=1)
            heads_NHd = torch.cat((self.q_norm(query), self.k_norm(key), value), dim=1)
        if rotation_Nc is not None:
            apply_rope_(heads_NHd[:, : self.num_heads + self.num_kv_heads], rotation_Nc)
        return heads_NHd

    def split_heads(self, heads: Tensor, *, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """Views of the queries, keys and values in what `heads` returned."""
        query, key, value = torch.split(heads, [self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=dim)
        return query, key, value

    def attention_output(self, hidden_ND: Tensor, attended_NHd: Tensor) -> Tensor:
        """Residual stream plus the projected [N, H, d] attention results."""
        output_ND: Tensor = self.o_proj(attended_NHd.reshape(len(hidden_ND), -1))
        if self.attention_output_norm is not None:
            output_ND = self.attention_output_norm(output_ND)
        return hidden_ND + output_ND

    def mlp(self, hidden_ND: Tensor) -> Tensor:
        """Residual stream plus the gated MLP."""
        # Two products, not one fused: the halves of a fused result are strided, and its gradient is a copy of both.
        normed_ND = self.mlp_norm(hidden_ND)
        output_ND: Tensor = self.down_proj(self._activation(self.gate_proj(normed_ND)) * self.up_proj(normed_ND))
        if self.mlp_output_norm is not None:
            output_ND = self.mlp_output_norm(output_ND)
        return hidden_ND + output_ND

    def attend(self, heads_NHd: Tensor, layout: SequenceLayout) -> Tensor:
        """Causal attention inside each document: [N, H, d] from `heads`.

        Right padding needs no mask: a real token never looks to its right. Padding on the left has one (`model.cells`).
        """
        if layout.bounds_D1 is not None:
            query, key, value = self.split_heads(layout.cells(heads_NHd), dim=1)
            bounds_D1, longest = layout.bounds_D1, layout.max_length
            return layout.unpad(
                [attend_packed(query, key, value, bounds_D1, longest, window=self.window, scale=self._scale)]
            )
        attended = []
        for bucket, mask, cells in zip(layout.buckets, layout.masks, layout.pad(heads_NHd), strict=True):
            query, key, value = self.split_heads(cells.transpose(1, 2), dim=1)
            if self.window is not None and self.window < bucket.length:
                near = _window_mask(bucket.length, self.window, query.device)[bucket.first_query :]
                mask = near if mask is None else mask & near
            result = F.scaled_dot_product_attention(
                query[:, :, bucket.first_query :],
                key,
                value,
                attn_mask=mask,
                is_causal=mask is None,
                scale=self._scale,
                enable_gqa=self.num_heads != self.num_kv_heads,
            )
            attended.append(result.transpose(1, 2).reshape(-1, self.num_heads, self.head_dim))
        return layout.unpad(attended)

    def forward(
        self, hidden_ND: Tensor, rotation_Nc: Tensor | None, layout: SequenceLayout, rows_M: Tensor | None = None
    ) -> Tensor:
        """Of all tokens, or of `rows_M` alone: the others are only attended to."""
        attended_NHd = self.attend(self.heads(hidden_ND, rotation_Nc), layout)
        if rows_M is not None:
            hidden_ND, attended_NHd = hidden_ND.index_select(0, rows_M), attended_NHd.index_select(0, rows_M)
        return self.mlp(self.attention_output(hidden_ND, attended_NHd))


class Decoder(nn.Module):
    """The whole model. A fresh one has zero projections: load weights with `weights.load_hf_state`."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        may_be_slow: bool = False,
        keeps_activations: bool = True,
    ) -> None:
        """
        Args:
            may_be_slow: half precision even on a CPU.
            keeps_activations: False: only the residual stream before each layer is kept for the backward pass, which
                computes the layer again. A third more arithmetic, the same gradient bit for bit.

        Raises:
            OurFault: half precision on a CPU, which can be a hundred times slower than float32 there.
        """
        super().__init__()
        if not may_be_slow and torch.device(device).type == "cpu" and dtype in (torch.bfloat16, torch.float16):
            raise OurFault(
                f"a decoder in {dtype} on a CPU: compute in float32 there, whatever the weights are stored in"
            )
        self.config = config
        self._keeps_activations = keeps_activations
        self.packs_weights = False
        """Whether weights that are loaded from now on are packed (`model.packed`), for inference alone."""
        self._packed_head: Tensor | None = None
        self.embed_tokens = nn.Parameter(torch.zeros(config.vocab_size, config.hidden_size, dtype=dtype))
        layers = nn.ModuleList(DecoderLayer(config, index, dtype) for index in range(config.num_layers))
        self.layers = cast("Sequence[DecoderLayer]", layers)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, dtype, config.norm_offset)
        self.lm_head = (
            None
            if config.tie_word_embeddings
            else nn.Parameter(torch.zeros(config.vocab_size, config.hidden_size, dtype=dtype))
        )
        self.to(device)
        frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        length = rotation_length(config.rope_scaling)
        self._rope = RopeTable(frequencies, dtype=dtype, device=device, length=length)
        local = config.local_attention
        self._local_rope = (
            None
            if local is None or local.rope_theta is None
            else RopeTable(inverse_frequencies(config.head_dim, local.rope_theta), dtype=dtype, device=device)
        )

    @property
    def lm_head_weight(self) -> Tensor:
        """[V, D]; the embedding matrix itself when tied. A packed one is for `model.packed.linear` alone."""
        if self._packed_head is not None:
            return self._packed_head
        return self.embed_tokens if self.lm_head is None else self.lm_head

    @property
    def embeddings(self) -> list[nn.Parameter]:
        """Matrices of tokens: the embedding, and the head where that is another."""
        return [self.embed_tokens] if self.lm_head is None else [self.embed_tokens, self.lm_head]

    def pack_head(self) -> None:
        """Multiply by a packed copy of the LM head from now on, where that is faster."""
        self._packed_head = None
        if can_pack(self.lm_head_weight):
            self._packed_head = pack(self.lm_head_weight)

    def embed(self, tokens_N: Tensor) -> Tensor:
        """[N] ids -> [N, D] residual stream."""
        embedded_ND = F.embedding(tokens_N, self.embed_tokens)
        scale = self.config.embedding_scale
        return embedded_ND if scale == 1.0 else embedded_ND * scale

    def rotations(self, positions_N: Tensor, num_positions: int) -> list[Tensor | None]:
        """Per layer, complex [N, d / 2] for `layer.heads`, of positions below `num_positions`."""
        full_Nc = self._rope.upto(num_positions).index_select(0, positions_N)
        local_Nc = full_Nc
        if self._local_rope is not None:
            local_Nc = self._local_rope.upto(num_positions).index_select(0, positions_N)
        rotations: list[Tensor | None] = [full_Nc if layer.window is None else local_Nc for layer in self.layers]
        for index in self.config.unrotated_layers:
            rotations[index] = None
        return rotations

    def final_norm(self, hidden_ND: Tensor) -> Tensor:
        """Residual stream -> the states that the LM head and the proofs see."""
        normed: Tensor = self.norm(hidden_ND)
        return normed

    def forward(self, tokens_N: Tensor, layout: SequenceLayout, rows_M: Tensor | None = None) -> Tensor:
        """Post-final-norm states [N, D] of concatenated documents; row t predicts token t + 1 of its document.

        Args:
            rows_M: int64; the rows that are wanted, [M, D] then. The last layer computes no others.
        """
        hidden_ND = self.embed(tokens_N)
        rotations = self.rotations(layout.positions_N, layout.max_length)
        last = self.layers[-1]
        for layer, rotation_Nc in zip(self.layers, rotations, strict=True):
            hidden_ND = self._run(layer, hidden_ND, rotation_Nc, layout, rows_M if layer is last else None)
        return self.final_norm(hidden_ND)

    def _run(self, layer: DecoderLayer, *inputs: Any) -> Tensor:
        if self._keeps_activations or not torch.is_grad_enabled():
            hidden: Tensor = layer(*inputs)
        else:
            hidden = checkpoint(layer, *inputs, use_reentrant=False, preserve_rng_state=False)
        return hidden


def _window_mask(length: int, window: int, device: torch.device) -> Tensor:
    """bool [length, length]: True where a row's token sees a column's."""
    ones = torch.ones(length, length, dtype=torch.bool, device=device)
    return ones.tril() & ones.triu(1 - window)
