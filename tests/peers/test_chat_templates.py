"""Chat templates that models are published with, rendered by us and by transformers; and conversations over them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from farflung.errors import UserError
from farflung.model.characters import character_tokenizer
from farflung.model.chat_template import ChatTemplate
from farflung.model.conversation import Conversation
from farflung.model.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL, which ships templates, is not installed: make test-peer"),
]

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def templates() -> list[Path]:
    spec = find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        return []
    return sorted(Path(spec.submodule_search_locations[0], "chat_templates").glob("*.jinja"))


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CONVERSATIONS = {
    "one turn": [turn("user", "What is 7 + 5?")],
    "system": [turn("system", "Be short."), turn("user", "Hello")],
    "answered": [turn("user", "a"), turn("assistant", "b")],
    "three turns": [turn("user", "a"), turn("assistant", "b  "), turn("user", "c\n")],
    "thinking": [turn("user", "a"), turn("assistant", "<think>\nhm\n</think>\n\nb"), turn("user", "c")],
    "odd characters": [turn("user", '{{ x }} <|im_end|> \u4f60\u597d "quoted" \\n')],
}


def theirs(source: str, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str | None:
    """None where transformers refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        rendered, _ = render_jinja_template(
            conversations=[messages], chat_template=source, add_generation_prompt=add_generation_prompt, **TOKENS
        )
    except Exception:  # noqa: BLE001 - whatever a template raises
        return None
    text: str = rendered[0]
    return text


def ours(source: str, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str | None:
    try:
        return ChatTemplate(source, TOKENS).render(messages, add_generation_prompt=add_generation_prompt)
    except UserError:
        return None


def test_the_corpus_is_there() -> None:
    assert len(templates()) >= 12


@pytest.mark.parametrize("path", templates(), ids=lambda path: path.stem)
def test_we_render_what_transformers_renders(path: Path) -> None:
    source = path.read_text()
    if "strftime_now" in source:
        pytest.skip("asks for today's date, which worker and validator would answer differently: refused on purpose")
    for name, messages in CONVERSATIONS.items():
        for flag in (True, False):
            expected = theirs(source, messages, add_generation_prompt=flag)
            assert ours(source, messages, add_generation_prompt=flag) == expected, name


def spelling(source: str) -> Tokenizer:
    """Every printable character is a token, so that ids stand for text one to one."""
    alphabet = "".join(dict.fromkeys(source + "".join(map(chr, range(32, 127))) + "\n"))
    files: dict[str, Any] = dict(character_tokenizer(alphabet).files)
    return Tokenizer.from_files({**files, "chat_template.jinja": source.encode()})


@pytest.mark.parametrize("path", templates(), ids=lambda path: path.stem)
def test_a_conversation_has_the_ids_of_the_whole_or_says_that_it_forked(path: Path) -> None:
    source = path.read_text()
    whole = [turn("user", "a"), turn("assistant", "b"), turn("user", "c")]
    try:
        tokenizer = spelling(source)
        conversation = Conversation(tokenizer, whole[:1])
        conversation.answer(tokenizer.encode("b"))
        conversation.say(whole[2:])
        expected = tokenizer.encode_chat(whole)
    except UserError as error:
        pytest.skip(f"the template takes no such conversation: {error}")
    if conversation.num_forks:
        assert conversation.ids == expected
    else:
        assert tokenizer.decode(conversation.ids, skip_special=False) == tokenizer.render(whole)
