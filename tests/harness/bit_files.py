"""Safetensors files of bit patterns: any type, without a tensor library."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farflung.sharding.file_layout import ITEM_BYTES

BITS: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""By size of an element in bytes."""
Arrays = Mapping[str, NDArray[Any]]


def bits_of(dtype: str) -> type[np.unsignedinteger[Any]]:
    """What holds the bits of a type of the format."""
    return BITS[ITEM_BYTES[dtype]]


def file_of(arrays: Arrays, dtypes: Mapping[str, str]) -> bytes:
    """The file of these tensors, in their order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in arrays.items():
        header[name] = {"dtype": dtypes[name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values())
