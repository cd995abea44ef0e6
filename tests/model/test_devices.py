"""Devices by name."""

import pytest
import torch

from farflung.errors import UserError
from farflung.model.devices import CPU, find_device


def test_the_processor_is_always_there() -> None:
    assert find_device("cpu", "worker.device") == CPU


def test_a_device_that_is_not_there_is_refused_with_the_setting_that_names_it() -> None:
    number = torch.cuda.device_count()
    with pytest.raises(
        UserError, match=rf"^worker\.device is cuda:{number} and this machine has {number} such devices"
    ):
        find_device(f"cuda:{number}", "worker.device")
