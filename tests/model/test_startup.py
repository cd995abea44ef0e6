"""What a process that only needs tokens has to load."""

import subprocess
import sys


def test_tokens_and_shapes_need_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "import farflung.model.tokenizer, farflung.model.characters\n"
        "import farflung.model.presets, farflung.model.vocabulary\n"
        "print(sorted({'torch', 'transformers'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
