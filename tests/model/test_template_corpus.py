"""Chat templates that models are published with: the ids that transformers gives, without transformers.

`template_corpus/expected.json` was written by `template_corpus/make_expected.py`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from farflung.errors import UserError
from farflung.model.conversation import Conversation
from farflung.model.tokenizer import Tokenizer

CORPUS = Path(__file__).parent / "template_corpus"
sys.path.insert(0, str(CORPUS))
from corpus import CONVERSATIONS, FAMILIES, TOKENS, source_of, turn  # noqa: E402

EXPECTED: dict[str, dict[str, list[int] | None]] = json.loads((CORPUS / "expected.json").read_text())
BPE = (CORPUS / "tokenizer.json").read_bytes()


def tokenizer(family: str) -> Tokenizer:
    files = {"tokenizer.json": BPE, "tokenizer_config.json": json.dumps(TOKENS).encode()}
    return Tokenizer.from_files({**files, "chat_template.jinja": source_of(family).encode()})


def ids(made: Tokenizer, messages: list[dict[str, Any]], *, prompted: bool) -> list[int] | None:
    """None where the template refuses the conversation."""
    try:
        text = made.render(messages, add_generation_prompt=prompted)
    except UserError:
        return None
    return made.encode(text)


def test_the_corpus_has_at_least_twelve_templates_and_few_refuse() -> None:
    assert set(EXPECTED) == set(FAMILIES)
    assert len(FAMILIES) >= 12
    cases = [case for family in EXPECTED.values() for case in family.values()]
    assert sum(case is None for case in cases) < len(cases) / 8


@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_template_gives_the_ids_that_transformers_gives(family: str) -> None:
    made = tokenizer(family)
    for name, messages in CONVERSATIONS.items():
        for prompted in (True, False):
            expected = EXPECTED[family][f"{name}{', prompted' if prompted else ''}"]
            assert ids(made, messages, prompted=prompted) == expected, (name, prompted)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_over_it_never_encodes_a_drawn_answer_anew(family: str) -> None:
    """Either what was said is a prefix of what follows, or the conversation says that it forked (T9, case 53)."""
    made = tokenizer(family)
    try:
        conversation = Conversation(made, [turn("user", "a")])
        drawn = made.encode("<think>\nhm\n</think>\n\nb")
        conversation.answer(drawn)
        so_far = list(conversation.ids)
        conversation.say([turn("user", "c")])
    except UserError:
        assert EXPECTED[family]["thinking"] is None
        return
    if conversation.num_forks:
        assert conversation.ids == made.encode(made.render(CONVERSATIONS["thinking"]))
    else:
        assert conversation.ids[: len(so_far)] == so_far


def test_a_template_that_asks_for_the_date_is_refused() -> None:
    with pytest.raises(UserError, match="strftime_now"):
        tokenizer("gptoss").render([turn("user", "a")])


def test_a_template_that_asks_whether_it_may_have_the_date_gets_its_default() -> None:
    assert "26 Jul 2024" in tokenizer("llama3_2").render([turn("user", "a")])
