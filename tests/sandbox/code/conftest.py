"""Pools for the tests, one for each way of shutting programs in that this machine has."""

from collections.abc import Iterator

import pytest

from farflung.errors import UserError
from farflung.sandbox.code.attacks.attack import LIMITS
from farflung.sandbox.code.config import CodePoolConfig
from farflung.sandbox.code.pool import CodePool


@pytest.fixture(scope="session", params=["namespaces", "bubblewrap"])
def pool(request: pytest.FixtureRequest) -> Iterator[CodePool]:
    """The name in brackets behind a test says which walls it ran behind."""
    try:
        made = CodePool(CodePoolConfig(backend=request.param, limits=LIMITS, num_warm=2))
    except UserError as error:
        pytest.skip(f"not on this machine: {error}")
    with made:
        yield made
