"""What a sandbox loads before it has a task: a start of bubblewrap costs little more than its interpreter."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import farflung
from farflung.sandbox.code.keeper import FLAGS

SOURCE = str(Path(farflung.__file__).parents[1])
DEAR = {"typing", "enum", "re", "json", "signal", "socket", "dataclasses", "inspect", "unittest", "decimal", "tempfile"}
"""Modules that take a tenth of a start or more."""
LIST = "import json; print(json.dumps(loaded))"


def loaded_by(module: str) -> set[str]:
    words = f"import sys; sys.path.insert(0, {SOURCE!r}); import {module}; loaded = sorted(sys.modules); {LIST}"
    done = subprocess.run([sys.executable, *FLAGS, "-c", words], capture_output=True, check=True, env={})
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", ["enter", "answers", "testing"])
def test_no_sandbox_waits_for_imports_that_its_task_may_not_need(module: str) -> None:
    loaded = loaded_by(f"farflung.sandbox.code.inside.{module}")
    assert f"farflung.sandbox.code.inside.{module}" in loaded
    assert loaded & DEAR == set()
