"""Logprobs of tokens from hidden states, without ever holding [N, V] logits.

    logits = (hidden / temperature) W^T in float32, reserved ids -inf
    logprob_t = logits_t[target_t] - logsumexp(logits_t);   entropy_t = -sum_v p_v log p_v

Chunks of tokens are computed one after another, and again in the backward pass:

    d logits = grad_logprob * (onehot - p) - grad_entropy * p * (log p + entropy)

Engine, trainer and verifier call `next_token_logits`: temperature and reserved ids have their meaning here alone.
Knows no decoder and no objective.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from farflung.model.packed import linear

MAX_LOGITS_PER_CHUNK = 1 << 23
"""Elements of a chunk of logits (32 MiB in float32). Half of it is a tenth slower at 49,000 ids; more gains nothing."""


def vocabulary_mask(vocab_size: int, reserved_token_ids: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """float32 [V]: -inf at reserved ids, 0 elsewhere.

    Raises:
        ValueError: a reserved id outside the vocabulary, or nothing left to draw.
    """
    outside = [token_id for token_id in reserved_token_ids if not 0 <= token_id < vocab_size]
    if outside:
        raise ValueError(f"reserved ids {outside} are outside the vocabulary of {vocab_size}")
    if len(set(reserved_token_ids)) >= vocab_size:
        raise ValueError(f"all {vocab_size} ids are reserved: none could be drawn")
    mask_V = torch.zeros(vocab_size, device=device)
    mask_V[list(reserved_token_ids)] = -torch.inf
    return mask_V


def next_token_logits(
    hidden_ND: Tensor, lm_head_weight_VD: Tensor, *, temperature: float, mask_V: Tensor | None
) -> Tensor:
    """[N, V] logits / temperature, at least float32, reserved ids at -inf; `log_softmax` of them is what is sampled.

    Args:
        hidden_ND: post-final-norm states.
        mask_V: from `vocabulary_mask`; None = nothing reserved.

    Raises:
        ValueError: temperature not above 0; greedy decoding takes the argmax at temperature 1.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}: it must be above 0; greedy is the argmax at temperature 1")
    hidden_ND, weight_VD = _wide(hidden_ND), _wide(lm_head_weight_VD)
    if temperature != 1:
        hidden_ND = hidden_ND / temperature
    return linear(hidden_ND, weight_VD, None if mask_V is None else mask_V.to(hidden_ND.dtype))


def token_logprobs(
    hidden_ND: Tensor,
    lm_head_weight_VD: Tensor,
    targets_N: Tensor,
    *,
    temperature: float = 1.0,
    reserved_token_ids: Sequence[int] = (),
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(logprobs_N, entropy_N) of `targets_N`; both carry gradients to states and head.

    Args:
        hidden_ND: states that predict the targets, row by row.
        targets_N: int64 ids; a reserved one has logprob -inf.
        chunk_tokens: tokens at a time; None = what `MAX_LOGITS_PER_CHUNK` allows.
    """
    vocab_size = len(lm_head_weight_VD)
    if chunk_tokens is None:
        chunk_tokens = max(1, MAX_LOGITS_PER_CHUNK // vocab_size)
    mask_V = vocabulary_mask(vocab_size, reserved_token_ids, hidden_ND.device) if reserved_token_ids else None
    logprobs_N, entropy_N = _ChunkedLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_ND, lm_head_weight_VD, targets_N, mask_V, temperature, chunk_tokens
    )
    return logprobs_N, entropy_N


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        mask_V: Tensor | None,
        temperature: float,
        chunk_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        logprobs, normalisers, entropies = [], [], []
        for hidden, targets in zip(hidden_ND.split(chunk_tokens), targets_N.split(chunk_tokens), strict=True):
            logits = next_token_logits(hidden, weight_VD, temperature=temperature, mask_V=mask_V)
            normaliser = logits.logsumexp(-1, keepdim=True)
            log_p = logits.sub_(normaliser)
            logprobs.append(log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1))
            normalisers.append(normaliser)
            entropies.append(_entropy_(log_p))
        entropy_N = torch.cat(entropies)
        ctx.save_for_backward(hidden_ND, weight_VD, targets_N, mask_V, torch.cat(normalisers), entropy_N)
        ctx.temperature, ctx.chunk_tokens = temperature, chunk_tokens
        ctx.set_materialize_grads(False)  # entropy is mostly a metric: without a gradient it costs nothing
        return torch.cat(logprobs), entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        hidden_ND, weight_VD, targets_N, mask_V, normaliser_N1, entropy_N = ctx.saved_tensors
        wide_VD = _wide(weight_VD)
        grad_logprob_N = torch.zeros_like(entropy_N) if grads[0] is None else grads[0]
        grad_weight_VD = torch.zeros_like(wide_VD) if ctx.needs_input_grad[1] else None
        grad_hidden_ND = torch.empty_like(hidden_ND)
        for start in range(0, len(hidden_ND), ctx.chunk_tokens):
            rows = slice(start, start + ctx.chunk_tokens)
            hidden = hidden_ND[rows]
            logits = next_token_logits(hidden, weight_VD, temperature=ctx.temperature, mask_V=mask_V)
            log_p = logits.sub_(normaliser_N1[rows])
            grad_N1 = (grad_logprob_N[rows] / ctx.temperature).unsqueeze(-1)
            if grads[1] is None:
                grad_logits = log_p.exp_().mul_(-grad_N1)
            else:
                grad_logits = _entropy_grad(log_p, entropy_N[rows], grads[1][rows] / ctx.temperature)
                grad_logits.addcmul_(log_p.exp_(), grad_N1, value=-1)
            grad_logits.scatter_add_(-1, targets_N[rows].unsqueeze(-1), grad_N1)
            grad_hidden_ND[rows] = grad_logits @ wide_VD
            if grad_weight_VD is not None:
                grad_weight_VD.addmm_(grad_logits.T, _wide(hidden))
        return grad_hidden_ND, grad_weight_VD, None, None, None, None


def _entropy_grad(log_p_NV: Tensor, entropy_N: Tensor, grad_N: Tensor) -> Tensor:
    """Gradient of the entropies in the logits. Reserved ids have p = 0 and log p = -inf, whose product is to be 0."""
    finite_NV = log_p_NV.clamp(min=torch.finfo(log_p_NV.dtype).min / 2)
    return log_p_NV.exp().mul_(finite_NV + entropy_N.unsqueeze(-1)).mul_(-grad_N.unsqueeze(-1))


def _entropy_(log_p_NV: Tensor) -> Tensor:
    """Overwrites its argument. Masked entries are clamped to a finite number, because 0 * -inf is not 0."""
    p_NV = log_p_NV.exp()
    return log_p_NV.clamp_(min=torch.finfo(log_p_NV.dtype).min).mul_(p_NV).sum(-1).neg_()


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
