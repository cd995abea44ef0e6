import importlib.util
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).parents[2] / "examples" / "single_process.py"


def the_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("single_process", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readable_twin_learns() -> None:
    before, after = the_example().main(num_versions=25, seed=0)
    assert before < 0.6
    assert after > before + 0.1
