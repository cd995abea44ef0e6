"""Room on the disk of a run."""

import shutil
from pathlib import Path


def want_of_space(folder: Path, min_free_bytes: int) -> str | None:
    """A sentence when less than `min_free_bytes` are free on the disk of `folder`, which exists."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes >= min_free_bytes:
        return None
    return (
        f"the disk of {folder} is full: {free_bytes / 2**20:.1f} MiB free, at least {min_free_bytes / 2**20:.0f} MiB "
        "needed; free some space and start again, the run continues where it was (--supervisor.min_free_bytes changes "
        "the limit)"
    )
