"""Budgets told in prompts and taken away again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.budget_prompt import BudgetPrompt, Where
from farflung.errors import UserError
from farflung.wire.task import Message

TEXTS = st.text(max_size=12)
MESSAGES = st.builds(
    lambda system, said: [*system, *said],
    st.lists(st.builds(Message, role=st.just("system"), content=TEXTS), max_size=1),
    st.lists(st.builds(Message, role=st.sampled_from(["user", "assistant"]), content=TEXTS), min_size=1, max_size=4),
)
CONVERSATION = (
    Message(role="user", content="one"),
    Message(role="assistant", content="1"),
    Message(role="user", content="two"),
    Message(role="assistant", content="2"),
)


@pytest.mark.parametrize("where", ["user", "start", "system"])
@given(messages=MESSAGES, target=st.integers(1, 10**6))
def test_what_was_told_can_be_taken_away(where: Where, messages: list[Message], target: int) -> None:
    prompt = BudgetPrompt(where=where)
    told = prompt.tell(messages, target)
    assert prompt.take_away(told, target) == tuple(messages)
    assert sum(str(target) in message.content for message in told) >= 1


def test_the_user_who_spoke_last_tells_it() -> None:
    told = BudgetPrompt(told=" ({target})").tell(CONVERSATION, 8)
    assert [message.content for message in told] == ["one", "1", "two (8)", "2"]


def test_a_system_message_is_made_only_where_there_is_none() -> None:
    prompt = BudgetPrompt(told=" Take {target}.", where="system")
    assert prompt.tell(CONVERSATION[:1], 8)[0] == Message(role="system", content="Take 8.")
    given = (Message(role="system", content="Be kind."), *CONVERSATION)
    assert prompt.tell(given, 8) == (Message(role="system", content="Be kind. Take 8."), *CONVERSATION)


def test_a_text_without_its_target_is_refused() -> None:
    with pytest.raises(UserError, match="once"):
        BudgetPrompt(told="think")
