"""Published test sets that come with this package (`data/NOTICE.md`), for evaluation and never for training.

Every item is held out, in the published order whatever the seed; the training split is empty, so that no pool can be
made of one. This module does not know what an item means.
"""

import gzip
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from farflung.envs.base import Split
from farflung.envs.tasks import check_index


@lru_cache(8)
def bundled_items(name: str) -> tuple[dict[str, Any], ...]:
    """The items of a JSON-lines file of `data/`, gzipped or not."""
    data = (files("farflung.envs") / "data" / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("utf-8")
    return tuple(json.loads(line) for line in text.splitlines() if line)


def item_at(items: tuple[dict[str, Any], ...], split: Split, index: int) -> dict[str, Any]:
    """Raises `IndexError` outside the held-out split."""
    check_index(split, index, len(items) if split == "heldout" else 0)
    return items[index]


def index_of(task_id: str) -> int:
    """`heldout/12` -> 12."""
    return int(task_id.rpartition("/")[2])
