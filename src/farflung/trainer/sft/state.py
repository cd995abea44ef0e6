"""Where a fine-tuning run stands, in one file that is whole or the one before.

masters/<name>, optimizer/<name>     float32 tensors
metadata: progress                   step, best loss, and a digest of everything that fixes the run
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from farflung.errors import OurFault, UserError

STATE_FILE = "state.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class SftProgress:
    step: int
    """Optimizer steps done."""
    best_loss: float
    """Lowest held-out loss; infinite before the first measurement."""
    run_digest: str
    """Of data, settings and first weights."""


def save_state(
    folder: Path, progress: SftProgress, masters: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]
) -> None:
    """Durable when it returns. Raises OurFault: the disk refuses; the state before is untouched."""
    tensors = {f"masters/{name}": tensor for name, tensor in masters.items()}
    tensors |= {f"optimizer/{name}": tensor.cpu().contiguous() for name, tensor in optimizer.items()}
    target = folder / STATE_FILE
    temporary = target.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(safetensors.torch.save(tensors, metadata={"progress": json.dumps(asdict(progress))}))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
    except OSError as error:
        raise OurFault(f"cannot save {target}: {error.strerror or error}") from error


def load_state(folder: Path) -> tuple[SftProgress, dict[str, Tensor], dict[str, Tensor]] | None:
    """(progress, masters, optimizer), None for a new run. Raises UserError: the file is no such state."""
    path = folder / STATE_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            progress = SftProgress(**json.loads(file.metadata()["progress"]))
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it to start anew") from error
    parts: list[dict[str, Tensor]] = [
        {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        for prefix in ("masters/", "optimizer/")
    ]
    return progress, {name: tensor.to(torch.float32) for name, tensor in parts[0].items()}, parts[1]
