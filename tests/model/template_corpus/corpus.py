"""Which published chat templates are tested, and on which conversations.

`gptoss` and `llama3_2` are not among them: they write today's date, which worker and validator would do differently.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

FAMILIES = (
    "cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3", "glm4moe", "idefics3", "lfm2",
    "llama3", "llama3_1", "llava_next", "nemotron_3_nano", "phi3", "phi3_5", "qwen2_5", "qwen3",
    "qwen3_5_think", "qwen3_instruct_2507", "smolvlm",
)  # fmt: skip

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

Turn = dict[str, Any]


def turn(role: str, content: str, **more: Any) -> Turn:
    return {"role": role, "content": content, **more}


CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 7, "b": 5}}}

CONVERSATIONS: dict[str, list[Turn]] = {
    "one turn": [turn("user", "What is 7 + 5?")],
    "system": [turn("system", "Be short."), turn("user", "Hello")],
    "answered": [turn("user", "a"), turn("assistant", "b")],
    "three turns": [turn("user", "a"), turn("assistant", "b  "), turn("user", "c\n")],
    "thinking": [turn("user", "a"), turn("assistant", "<think>\nhm\n</think>\n\nb"), turn("user", "c")],
    "tool": [turn("user", "a"), turn("assistant", "", tool_calls=[CALL]), turn("tool", "12", name="add")],
    "odd characters": [turn("user", '{{ x }} <|im_end|> \u4f60\u597d "quoted" \\n')],
}


def source_of(family: str) -> str:
    """The template's text; the package that ships it need not be importable.

    Raises FileNotFoundError: `trl`, of which `make setup` installs the files, is missing.
    """
    spec = find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the chat templates come with trl: run make setup")
    return Path(spec.submodule_search_locations[0], "chat_templates", f"{family}.jinja").read_text()
