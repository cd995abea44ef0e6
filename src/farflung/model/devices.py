"""Where tensors live: a device by the name that settings give it, refused where there is none."""

import torch

from farflung.errors import UserError

CPU = torch.device("cpu")


def find_device(name: str, setting: str) -> torch.device:
    """The device called `name`: cpu, cuda or cuda:N.

    Args:
        setting: where the name comes from, for the sentence.

    Raises:
        UserError: this machine has no such device.
    """
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"{setting} is {name} and this machine has {torch.cuda.device_count()} such devices: set cpu, "
            "or install torch for CUDA"
        )
    return device
