"""Writes `tokenizer.json` and `expected.json`: what transformers makes of published chat templates.

    python tests/model/template_corpus/make_expected.py

The templates are read from the installed `trl` package (see constraints.txt) and are not part of this repository; what
is kept are a byte-level BPE tokenizer trained here, and for each template and conversation the ids that
`transformers.PreTrainedTokenizerFast.apply_chat_template` gives. Only the test reads them.
"""

import json
import re
from pathlib import Path
from typing import Any

from corpus import CONVERSATIONS, FAMILIES, HERE, TOKENS, source_of
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

MARKER = re.compile(r"<[|\uff5c][^<>\s]{1,40}[|\uff5c]>|</?[a-z_]{1,20}>|\[/?[A-Z_]{2,20}\]")
THINKING = ("<think>", "</think>")
VOCABULARY = 700


def rendered(source: str, messages: list[dict[str, str]], *, prompt: bool) -> str | None:
    """None where the template refuses the conversation."""
    try:
        texts, _ = render_jinja_template(
            conversations=[messages], chat_template=source, add_generation_prompt=prompt, **TOKENS
        )
    except Exception:  # noqa: BLE001 - whatever a template raises
        return None
    return str(texts[0])


def trained(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    markers = sorted(
        ({marker for text in texts for marker in MARKER.findall(text)} | set(TOKENS.values())) - set(THINKING)
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=markers, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    # As published: one id each, and yet text that a reader of the answer sees.
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in THINKING])
    return tokenizer


def main() -> None:
    texts = [
        text
        for family in FAMILIES
        for messages in CONVERSATIONS.values()
        if (text := rendered(source_of(family), messages, prompt=True)) is not None
    ]
    tokenizer = trained(texts)
    tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)
    peer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **TOKENS)
    expected: dict[str, Any] = {}
    for family in FAMILIES:
        peer.chat_template = source_of(family)
        expected[family] = {}
        for name, messages in CONVERSATIONS.items():
            for prompt in (True, False):
                ids = None
                if rendered(peer.chat_template, messages, prompt=prompt) is not None:
                    ids = peer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)
                expected[family][f"{name}{', prompted' if prompt else ''}"] = ids
    lines = [f" {json.dumps(family)}: {json.dumps(cases)}" for family, cases in expected.items()]
    Path(HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
