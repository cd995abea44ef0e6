"""Our objectives and TRL's, on the same tensors: value and gradient agree to 1e-6 in float32.

Where the two differ by definition, the test states the difference as a formula.
"""

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

import trl_losses as peer
from farflung.rl.guards import GuardParams
from farflung.rl.kl import KlParams
from farflung.rl.objectives import OBJECTIVES, Objective, make_params

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: `make test-peer` installs it"),
    pytest.mark.filterwarnings("ignore"),
]

CLIP = {"epsilon": 0.2, "epsilon_high": 0.28}
OUR_CLIP = {"clip_low": 0.2, "clip_high": 0.28}
DECOUPLED = OUR_CLIP | {"anchor": "decoupled"}


def objective(name: str, **parts: Any) -> Objective:
    extras = {key: parts.pop(key) for key in ("guard", "kl") if key in parts}
    params = make_params(name, parts, max_length_tokens=peer.MAX_COMPLETION_TOKENS)
    return Objective(function=OBJECTIVES[name][1], params=params, **extras)


def assert_alike(
    trl: tuple[float, torch.Tensor], ours: tuple[float, torch.Tensor], *, times: float = 1.0, plus: float = 0.0
) -> None:
    """TRL's value and gradient are `times` ours; `plus` is a constant in its value."""
    assert trl[0] == pytest.approx(times * ours[0] + plus, abs=1e-6)
    torch.testing.assert_close(trl[1], times * ours[1], rtol=1e-5, atol=1e-6)


LOSSES: dict[str, tuple[dict[str, Any], Objective]] = {
    "dapo": ({"loss_type": "dapo", **CLIP}, objective("dapo")),
    "two-sided": ({"loss_type": "dapo", **CLIP, "delta": 1.5}, objective("grpo", anchor="behaviour", delta=1.5)),
    "bnpo, undivided step": ({"loss_type": "bnpo", **CLIP}, objective("dapo")),
    "grpo": ({"loss_type": "grpo", **CLIP}, objective("ppo", **OUR_CLIP, aggregation="sequence_mean")),
    "dr_grpo": ({"loss_type": "dr_grpo", **CLIP}, objective("dr_grpo", **OUR_CLIP)),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.2}, objective("cispo", ratio_high=1.2)),
    "sapo": ({"loss_type": "sapo"}, objective("sapo", aggregation="sequence_mean")),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", **CLIP},
        objective("gspo", **OUR_CLIP),
    ),
    "gspo, token mean": (
        {"loss_type": "dapo", "importance_sampling_level": "sequence", **CLIP},
        objective("gspo", **OUR_CLIP, aggregation="token_mean"),
    ),
    "luspo": (
        {"loss_type": "luspo", "importance_sampling_level": "sequence", **CLIP},
        objective("gspo", **OUR_CLIP, aggregation="sequence_sum"),
    ),
    "vespo": ({"loss_type": "vespo"}, objective("vespo")),
    "vespo, own parameters": (
        {"loss_type": "vespo", "vespo_k_pos": 1.0, "vespo_lambda_neg": 0.5},
        objective("vespo", k_positive=1.0, lambda_negative=0.5),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_agree(name: str) -> None:
    settings, ours = LOSSES[name]
    made = peer.trainer(**settings)
    for seed in range(3):
        given = peer.tokens(seed)
        assert_alike(peer.loss(made, given), peer.ours(ours, given))


def test_every_loss_type_of_trl_is_compared() -> None:
    """TRL names them in one string; a new one makes this fail."""
    from trl import GRPOConfig

    described = str(GRPOConfig.__dataclass_fields__["loss_type"].metadata["help"])
    names = {settings["loss_type"] for settings, _ in LOSSES.values()}
    listed = described.split("Supported values are ")[-1].split(". ")[0]
    assert {word.strip("' ") for word in listed.replace(" and ", ", ").split(",") if word.strip("' ")} == names


@pytest.mark.parametrize("loss_type", ["dapo", "cispo", "vespo"])
@pytest.mark.parametrize(("is_corrected", "estimator"), [(False, "k3"), (True, "k3_unbiased")])
def test_the_kl_term_agrees(loss_type: str, is_corrected: bool, estimator: Any) -> None:
    settings, _ = LOSSES[loss_type]
    made = peer.trainer(**settings, beta=0.1, use_bias_correction_kl=is_corrected)
    parts = {"ratio_high": 1.2} if loss_type == "cispo" else {}
    ours = objective(loss_type, **parts, kl=KlParams(coefficient=0.1, estimator=estimator))
    given = peer.tokens(5)
    assert_alike(peer.loss(made, given), peer.ours(ours, given))


def test_trl_averages_its_kl_as_the_loss_type_ours_over_tokens() -> None:
    """grpo with beta: TRL's KL is (1/S) sum_i mean_t k3, ours sum k3 / N whatever the objective's aggregation."""
    given = peer.tokens(6)
    with_kl = peer.loss(peer.trainer(loss_type="grpo", **CLIP, beta=0.1, use_bias_correction_kl=False), given)
    without = peer.ours(LOSSES["grpo"][1], given)
    x = given.pi - given.ref
    k3 = torch.where(given.mask, (-x).exp() - 1 + x, 0)
    lengths = given.mask.sum(1)
    assert with_kl[0] - without[0] == pytest.approx(0.1 * float((k3.sum(1) / lengths).mean()), abs=1e-6)
    ours = peer.ours(
        objective("ppo", **OUR_CLIP, aggregation="sequence_mean", kl=KlParams(coefficient=0.1, estimator="k3")), given
    )
    assert ours[0] - without[0] == pytest.approx(0.1 * float(k3.sum() / lengths.sum()), abs=1e-6)


def test_truncated_rows_leave_trls_sequence_mean_diluted() -> None:
    """grpo with masked rows: TRL divides by all B rows, ours by the S rows that have a token: TRL = ours * S / B."""
    lengths = (3, 7, 0, 5, 16, 0, 9, 4)
    given = peer.tokens(7, lengths=lengths)
    trl = peer.loss(peer.trainer(loss_type="grpo", **CLIP), given)
    assert given.num_loss_sequences == 6
    assert_alike(trl, peer.ours(LOSSES["grpo"][1], given), times=6 / 8)


@pytest.mark.parametrize("name", ["dapo", "two-sided", "cispo", "vespo"])
def test_masked_rows_do_not_count_where_tokens_do(name: str) -> None:
    settings, ours = LOSSES[name]
    given = peer.tokens(8, lengths=(3, 7, 0, 5, 16, 0, 9, 4))
    assert_alike(peer.loss(peer.trainer(**settings), given), peer.ours(ours, given))


def test_trls_bnpo_depends_on_how_the_step_is_cut_and_its_dapo_does_not() -> None:
    """Two micro-batches: bnpo is the mean of their token means, dapo the sum over the tokens of the step."""
    given = peer.tokens(9)
    halves = [peer.rows(given, slice(0, 4)), peer.rows(given, slice(4, 8))]
    cut = {"gradient_accumulation_steps": 2, "num_completions": 4}
    bnpo = peer.trainer(loss_type="bnpo", **CLIP, **cut)
    dapo = peer.trainer(loss_type="dapo", **CLIP, **cut)
    local = [peer.ours(LOSSES["dapo"][1], half) for half in halves]
    whole = peer.ours(LOSSES["dapo"][1], given)
    assert sum(peer.loss(bnpo, half)[0] for half in halves) == pytest.approx((local[0][0] + local[1][0]) / 2, abs=1e-6)
    num_items = given.num_loss_tokens
    parts = [peer.loss(dapo, half, num_items=num_items) for half in halves]
    assert_alike((parts[0][0] + parts[1][0], torch.cat([part[1] for part in parts])), whole)


@pytest.mark.parametrize(
    ("mode", "low", "ours"),
    [
        (
            "token_truncate",
            0.5,
            objective("grpo", **OUR_CLIP, delta=1e9, weight_mode="clip", weight_low=0.5, weight_high=1.2),
        ),
        (
            "token_mask",
            0.9,
            objective("grpo", **OUR_CLIP, delta=1e9, weight_mode="mask", weight_low=0.9, weight_high=1.2),
        ),
        ("token_mask", None, objective("ppo", **DECOUPLED, guard=GuardParams(mode="mask", high=1.2))),
        (
            "sequence_truncate",
            None,
            objective("ppo", **DECOUPLED, guard=GuardParams(mode="truncate", level="sequence", high=1.2)),
        ),
        (
            "sequence_mask",
            None,
            objective("ppo", **DECOUPLED, guard=GuardParams(mode="mask", level="sequence", high=1.2)),
        ),
        (
            "sequence_mask",
            0.8,
            objective("ppo", **DECOUPLED, guard=GuardParams(mode="band", level="sequence", low=0.8, high=1.2)),
        ),
    ],
)
def test_the_correction_of_sampler_mismatch_agrees(mode: str, low: float | None, ours: Objective) -> None:
    """TRL's weight old / sampler in its four modes is our weight prox / mu of the decoupled form."""
    made = peer.trainer(
        loss_type="dapo",
        **CLIP,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=low,
        vllm_importance_sampling_clip_max=1.2,
    )
    given = peer.tokens(10, mismatch=0.2)
    weight = peer.rollout_batch(made, given, rewards=[0.0] * 8)["importance_sampling_ratio"]
    assert (weight != 1).any()
    assert_alike(peer.loss(made, given, weight=weight), peer.ours(ours, given, is_sampler=True))


def test_vespo_takes_the_mismatch_into_its_sequence_weight() -> None:
    """TRL multiplies old / sampler, bounded, into w; ours is pi / mu at once, the same where no bound acts."""
    made = peer.trainer(
        loss_type="vespo", vllm_importance_sampling_mode="token_truncate", vllm_importance_sampling_clip_max=100.0
    )
    given = peer.tokens(11)
    weight = peer.rollout_batch(made, given, rewards=[0.0] * 8)["importance_sampling_ratio"]
    assert_alike(peer.loss(made, given, weight=weight), peer.ours(objective("vespo"), given, is_sampler=True))


def test_off_policy_sequence_masking_drops_the_same_sequences() -> None:
    """OPSM: A < 0 and mean_t(mu - pi) above the threshold; ours looks at prox, which is pi in the first step."""
    threshold = 0.05
    made = peer.trainer(loss_type="dapo", **CLIP, off_policy_mask_threshold=threshold)
    opsm = GuardParams(mode="band", level="geometric", low=math.exp(-threshold), high=math.inf, only_negative=True)
    given = peer.tokens(13)
    given = replace(given, sampler=given.old, advantages_B=given.advantages_B.abs() * torch.tensor([1, -1] * 4))
    drift_B = torch.where(given.mask, given.old - given.pi, 0).sum(1) / given.mask.sum(1)
    assert {(bool(d > threshold), bool(a < 0)) for d, a in zip(drift_B, given.advantages_B, strict=True)} == {
        (is_far, is_negative) for is_far in (True, False) for is_negative in (True, False)
    }
    ours = peer.ours(objective("dapo", guard=opsm), given, is_first_step=True)
    assert_alike(peer.loss(made, given), ours)
    assert ours[0] != pytest.approx(peer.ours(objective("dapo"), given)[0])
