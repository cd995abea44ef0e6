"""A conversation as token ids that only grow: what a model drew is kept as drawn, never decoded and encoded again.

    prompt ids | completion ids as drawn | ids of what the template puts after an answer and before the next | ...

The template's text between turns is found by rendering the whole conversation and taking what follows the last answer.
A template that rewrites earlier turns (dropping old thinking, say) cannot be continued so: the conversation is then
forked, rendered afresh, and says so. Does not know models.
"""

from collections.abc import Sequence

from farflung.model.tokenizer import ChatMessage, Tokenizer


class Conversation:
    """Messages and the ids that stand for them."""

    def __init__(self, tokenizer: Tokenizer, messages: Sequence[ChatMessage]) -> None:
        """Raises UserError: the template refuses the messages."""
        self._tokenizer = tokenizer
        self._messages = list(messages)
        rendered = tokenizer.render_marked(self._messages)
        self._text = rendered.text
        self.ids = tokenizer.encode_rendered(rendered)
        """Up to where the next answer starts."""
        self.num_forks = 0
        """How often the template rewrote what had been said."""

    def answer(self, ids: Sequence[int]) -> str:
        """The model drew `ids`, with or without an end-of-turn id; returns its text."""
        self.ids = [*self.ids, *ids]
        spoken = self._tokenizer.decode(ids)
        self._messages.append({"role": "assistant", "content": spoken})
        self._text += self._tokenizer.decode(ids, skip_special=False)
        return spoken

    def say(self, messages: Sequence[ChatMessage]) -> None:
        """What follows the answer: a user's next message, a tool's result.

        Raises:
            UserError: the template refuses the messages; nothing has changed then.
        """
        rendered = self._tokenizer.render_marked([*self._messages, *messages])
        if rendered.text.startswith(self._text):
            between = self._tokenizer.encode_rendered(rendered.rest(len(self._text)))
            self.ids = [*self.ids, *between]
        else:
            self.ids = self._tokenizer.encode_rendered(rendered)
            self.num_forks += 1
        self._messages += messages
        self._text = rendered.text


def rewrites_history(tokenizer: Tokenizer) -> bool:
    """Whether a template cannot go on after an answer, or one with thinking in it, as they were said.

    Raises:
        UserError: the template refuses a conversation of a user and an assistant.
    """
    asked = {"role": "user", "content": "1"}
    ends = ["", *(tokenizer.decode([token], skip_special=False) for token in tokenizer.eos_token_ids)]
    for answer in ("2", "<think>\n1\n</think>\n\n2"):
        said = tokenizer.render([asked]) + answer
        then = tokenizer.render([asked, {"role": "assistant", "content": answer}, {"role": "user", "content": "3"}])
        if not any(then.startswith(said + end) for end in ends):
            return True
    return False
