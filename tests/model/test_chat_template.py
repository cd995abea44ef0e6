"""Templates of strangers."""

import pytest

from farflung.errors import UserError
from farflung.model.chat_template import MAX_TEMPLATE_BYTES, ChatTemplate

_MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


def _render(source: str) -> str:
    return ChatTemplate(source, {"eos_token": "</s>"}).render(_MESSAGES, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n{% endif %}\n{% endfor %}", "hi\n"),
        ("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", "hi"),
        ("{% generation %}{{ messages[1].content }}{{ eos_token }}{% endgeneration %}!", "yo</s>!"),
        ("{{ {'a': 'ü<'} | tojson }}", '{"a": "ü<"}'),
        ("{% if tools is none and add_generation_prompt %}go{% endif %}", "go"),
        ("{{ bos_token }}{% if strftime_now is defined %}clock{% endif %}|", "|"),
    ],
)
def test_what_templates_of_the_field_expect_is_there(source: str, text: str) -> None:
    assert _render(source) == text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ messages[0].missing.deeper }}", "no attribute"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% include 'secret' %}", "loader"),
    ],
)
def test_a_template_that_fails_or_reaches_out_is_refused(source: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        _render(source)


def test_a_template_too_long_is_refused() -> None:
    with pytest.raises(UserError, match="at most"):
        ChatTemplate("x" * (MAX_TEMPLATE_BYTES + 1), {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**10 }}",
        "{{ [1] * 10**10 }}",
        "{{ 2**10000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ messages | tojson(indent=10**9) }}",
        "{{ 'a' | center(10**9) }}",
        "{{ lipsum(n=10**7) }}",
    ],
)
def test_a_few_characters_of_a_template_make_no_gigabytes(source: str) -> None:
    with pytest.raises(UserError, match="chat template"):
        ChatTemplate(source, {}).render([{"role": "user", "content": "x"}], add_generation_prompt=True)
