"""Logprobs without whole logits."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from farflung.model.head import next_token_logits, token_logprobs, vocabulary_mask


def _inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(11, 5, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(13, 5, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, torch.arange(11) % 9


def _by_autograd(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, reserved: Sequence[int]
) -> tuple[Tensor, Tensor]:
    logits = hidden @ weight.T / temperature
    allowed = torch.tensor([token_id not in reserved for token_id in range(len(weight))])
    log_p = logits[:, allowed].log_softmax(-1)
    columns = (allowed.cumsum(0) - 1)[targets]
    return log_p.gather(-1, columns.unsqueeze(-1)).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


def test_two_tokens_by_hand() -> None:
    hidden = torch.tensor([[1.0], [1.0]])
    weight = torch.log(torch.tensor([[1.0], [3.0], [9.0]]))
    logprobs, entropy = token_logprobs(hidden, weight, torch.tensor([0, 1]), reserved_token_ids=[2])
    torch.testing.assert_close(logprobs.exp(), torch.tensor([0.25, 0.75]))
    expected = -(0.25 * torch.tensor(0.25).log() + 0.75 * torch.tensor(0.75).log())
    torch.testing.assert_close(entropy, expected.expand(2))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("reserved", [(), (9, 12)])
@pytest.mark.parametrize("chunk_tokens", [1, 4, 11, None])
def test_chunks_equal_the_whole_with_their_gradients(
    temperature: float, reserved: tuple[int, ...], chunk_tokens: int | None
) -> None:
    hidden, weight, targets = _inputs()
    ours = token_logprobs(
        hidden, weight, targets, temperature=temperature, reserved_token_ids=reserved, chunk_tokens=chunk_tokens
    )
    theirs = _by_autograd(hidden, weight, targets, temperature, reserved)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    upstream = torch.linspace(-1, 2, 11, dtype=torch.float64)
    for logprob_part, entropy_part in ((1.0, 0.0), (0.0, 1.0), (1.0, -0.3)):
        gradients = [
            torch.autograd.grad(
                ((logprob_part * each[0] + entropy_part * each[1]) * upstream).sum(),
                (hidden, weight),
                retain_graph=True,
            )
            for each in (ours, theirs)
        ]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad((ours[0] * upstream).sum(), (hidden, weight), retain_graph=True),
        torch.autograd.grad((theirs[0] * upstream).sum(), (hidden, weight), retain_graph=True),
        rtol=0,
        atol=1e-12,
    )
    torch.testing.assert_close(
        torch.autograd.grad((ours[1] * upstream).sum(), (hidden, weight)),
        torch.autograd.grad((theirs[1] * upstream).sum(), (hidden, weight)),
        rtol=0,
        atol=1e-12,
    )


def test_the_gradient_is_the_derivative() -> None:
    hidden, weight, targets = _inputs()

    def logprobs(hidden: Tensor, weight: Tensor) -> Tensor:
        return token_logprobs(hidden, weight, targets, temperature=0.8, reserved_token_ids=[10], chunk_tokens=3)[0]

    assert torch.autograd.gradcheck(logprobs, (hidden, weight))


def test_float32_chunks_agree_to_a_millionth() -> None:
    hidden, weight, targets = _inputs(torch.float32)
    whole, chunked = (token_logprobs(hidden, weight, targets, chunk_tokens=size)[0] for size in (11, 2))
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-6)


def test_half_precision_is_widened_and_gets_a_gradient_in_kind() -> None:
    hidden, weight, targets = _inputs(torch.bfloat16)
    logprobs, entropy = token_logprobs(hidden, weight, targets)
    assert logprobs.dtype == entropy.dtype == torch.float32
    expected, _ = token_logprobs(hidden.float(), weight.float(), targets)
    assert torch.equal(logprobs, expected)
    logprobs.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.bfloat16


def test_no_logits_are_kept_for_the_backward_pass() -> None:
    hidden, weight, targets = _inputs()
    logprobs, _ = token_logprobs(hidden, weight, targets, chunk_tokens=2)
    saved = logprobs.grad_fn.saved_tensors  # type: ignore[union-attr]
    assert max(tensor.numel() for tensor in saved if tensor is not None) < 11 * 13


def test_a_reserved_id_is_never_likely_and_a_reserved_target_impossible() -> None:
    hidden, weight, _ = _inputs()
    mask = vocabulary_mask(13, [4, 7])
    logits = next_token_logits(hidden, weight, temperature=1.0, mask_V=mask)
    assert logits.softmax(-1)[:, [4, 7]].abs().max() == 0
    torch.testing.assert_close(logits[:, 0], (hidden @ weight.T)[:, 0])
    logprobs, entropy = token_logprobs(hidden, weight, torch.full((11,), 4), reserved_token_ids=[4, 7])
    assert torch.isneginf(logprobs).all()
    assert torch.isfinite(entropy).all()


def test_temperature_divides_the_logits() -> None:
    hidden, weight, _ = _inputs()
    plain = next_token_logits(hidden, weight, temperature=1.0, mask_V=None)
    torch.testing.assert_close(next_token_logits(hidden, weight, temperature=0.5, mask_V=None), 2 * plain)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    hidden, weight, targets = _inputs()
    with pytest.raises(ValueError, match="above 0"):
        token_logprobs(hidden, weight, targets, temperature=temperature)


@pytest.mark.parametrize(("reserved", "words"), [([13], "outside"), ([-1], "outside"), (list(range(13)), "none could")])
def test_impossible_reserved_ids_are_refused(reserved: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        vocabulary_mask(13, reserved)
