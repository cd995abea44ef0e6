"""A decoder for a configuration: the own one, or a foreign model behind the same interface.

Both take flat tokens with a layout and give states, and have `config`, `lm_head_weight` and parameters.
"""

import torch

from farflung.errors import UserError
from farflung.model.any_config import AnyConfig
from farflung.model.decoder import Decoder
from farflung.model.foreign.config import ForeignConfig
from farflung.model.foreign.decoder import ForeignDecoder

AnyDecoder = Decoder | ForeignDecoder


def build_decoder(
    config: AnyConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    may_be_slow: bool = False,
    keeps_activations: bool = True,
) -> AnyDecoder:
    """A model without weights; arguments as `Decoder`'s.

    Raises:
        UserError: a foreign model that transformers cannot run, or that is asked for what only the own decoder has.
        OurFault: half precision on a CPU.
    """
    if not isinstance(config, ForeignConfig):
        return Decoder(config, dtype=dtype, device=device, may_be_slow=may_be_slow, keeps_activations=keeps_activations)
    if not keeps_activations:
        raise UserError(
            f"trainer.compute.activation_checkpointing is on, and {config.architecture} is run by transformers, where "
            "it is not offered: turn it off"
        )
    return ForeignDecoder(config, dtype=dtype, device=device, may_be_slow=may_be_slow)
