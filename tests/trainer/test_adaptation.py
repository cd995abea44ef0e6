from typing import Any

import pytest

from farflung.rl.adaptive import ObjectiveState
from farflung.trainer.adaptation import Adaptation
from farflung.trainer.config import ObjectiveConfig
from farflung.trainer.objective import make_objective

METRICS = {"kl": 0.5, "entropy": 0.3}


def made(**settings: Any) -> tuple[Adaptation, ObjectiveConfig]:
    config = ObjectiveConfig.model_validate(settings)
    return Adaptation(config), config


def weights(adaptation: Adaptation, config: ObjectiveConfig) -> tuple[float, float]:
    """Of KL and entropy bonus in the objective of this version; 0 where there is no such part."""
    objective = adaptation.apply(make_objective(config, max_length_tokens=1))
    return (
        0.0 if objective.kl is None else objective.kl.coefficient,
        0.0 if objective.entropy is None else objective.entropy.coefficient,
    )


def test_without_targets_coefficients_are_those_of_the_settings() -> None:
    adaptation, config = made(kl={"coefficient": 0.1}, entropy={"coefficient": 0.2})
    assert weights(adaptation, config) == (0.1, 0.2)
    adaptation.state = adaptation.after(METRICS, 100)
    assert weights(adaptation, config) == (0.1, 0.2)
    assert (adaptation.is_on, adaptation.metrics()) == (False, {})


@pytest.mark.parametrize(
    ("entropy", "acts", "following"), [(0.3, 0.25, 0.35), (0.5, 0.25, 0.35), (0.6, 0.0, 0.15), (None, 0.0, 0.25)]
)
def test_a_bonus_with_a_target_acts_while_entropy_is_known_to_be_low(
    entropy: float | None, acts: float, following: float
) -> None:
    adaptation, config = made(entropy={"coefficient": 0.25, "target": 0.5, "change": 0.1})
    adaptation.state = ObjectiveState(entropy_coefficient=0.25, entropy=entropy)
    assert weights(adaptation, config) == (0.0, acts)
    assert adaptation.metrics() == {"entropy_coefficient": acts}
    measured = {} if entropy is None else {"entropy": entropy}
    assert adaptation.after(measured, 100).entropy_coefficient == pytest.approx(following)


def test_the_kl_coefficient_is_steered_wherever_the_term_stands() -> None:
    for placement, in_loss in (("loss", 0.1), ("reward", 0.0)):
        adaptation, config = made(kl={"coefficient": 0.1, "target": 0.1, "horizon": 1000, "placement": placement})
        assert weights(adaptation, config) == (in_loss, 0.0)
        assert adaptation.after(METRICS, 500).kl_coefficient == pytest.approx(0.1 * 1.1)
        assert adaptation.after({}, 500) == adaptation.state


def test_a_version_without_tokens_changes_nothing() -> None:
    adaptation, _ = made(kl={"coefficient": 0.1, "target": 0.1}, entropy={"target": 0.5})
    adaptation.state = adaptation.after(METRICS, 100)
    assert adaptation.after({"num_groups": 4.0}, 0) == adaptation.state


def test_a_snapshot_brings_the_state_back() -> None:
    adaptation, config = made(kl={"coefficient": 0.1, "target": 0.1}, entropy={"target": 0.5})
    adaptation.state = adaptation.after(METRICS, 100)
    again = Adaptation(config)
    again.restore(adaptation.snapshot())
    assert again.state == adaptation.state
    with pytest.raises(ValueError, match="entropy"):
        again.restore({"entropy": "high"})
