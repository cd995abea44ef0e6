"""Requests with a form: what counts as having it, what comes near, which tasks there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farflung.envs.instructions import Instructions
from farflung.envs.instructions.forms import FORMS
from farflung.errors import UserError
from farflung.slots.strata import interleaving_of
from farflung.wire.task import Message, Task


def asks(form: str, variant: int, subject: str = "cats") -> Task:
    return Task(
        env="instructions",
        task_id=f"{form}/train/0",
        messages=(Message(role="user", content="any"),),
        answer=f"{form} {variant} {subject}",
    )


def closeness(form: str, variant: int, reply: str) -> float:
    return Instructions(0, {}).grade(asks(form, variant), reply).components["form"]


@pytest.mark.parametrize(
    ("form", "variant", "reply"),
    [
        ("words", 1, "Cats sleep a-lot."),
        ("words", 1, "  Cats - they sleep\n"),
        ("list", 0, "1. Fur\n2. Long whiskers"),
        ("list", 1, "1.Fur\n\n2. Tails \n3. Nine lives"),
        ("json", 0, '{"answer": "Cats sleep well."}'),
        ("json", 1, '{\n  "reply": "a \\"small\\" cat"\n}'),
        ("opening", 0, "Answer: cats sleep well"),
        ("closing", 2, "Cats sleep well. The end."),
        ("capitals", 0, "CATS, 9 LIVES!"),
        ("quotes", 0, '"Cats sleep well."'),
        ("keyword", 4, 'They do not like "Water".'),
        ("words", 1, "<think>not counted at all</think>Cats sleep well"),
    ],
)
def test_a_reply_that_has_its_form_is_correct(form: str, variant: int, reply: str) -> None:
    assert closeness(form, variant, reply) == 1.0
    assert Instructions(0, {}).grade(asks(form, variant), reply).correct == 1.0


@pytest.mark.parametrize(
    ("form", "variant", "reply", "near"),
    [
        ("words", 2, "Cats sleep", 0.5),
        ("words", 0, "one two three four five", 0.0),
        ("list", 2, "1. Fur\n2. Tails", 0.5),
        ("list", 0, "Here:\n1. Fur\n2. Tails", 0.0),
        ("list", 0, "1. Fur\n2. Tails\nThat is all", 0.5),
        ("list", 0, "1. What they all have\n2. Tails", 0.5),
        ("list", 0, "1.\n2.", 0.5),
        ("list", 0, "fur, tails", 0.0),
        ("json", 0, '{"answer": "Cats', 0.25),
        ("json", 0, '{"answer": 3}', 0.5),
        ("json", 0, '{"answer": "a", "more": "b"}', 0.5),
        ("json", 0, '["answer"]', 0.25),
        ("json", 0, "Cats sleep", 0.0),
        ("json", 0, "[" * 3000, 0.0),
        ("json", 0, '{"answer":' * 400, 0.25),
        ("json", 0, "9" * 4000, 0.25),
        ("json", 0, '{"answer": "cats"}', 0.5),
        ("opening", 0, "Answer:", 0.5),
        ("opening", 0, "The Answer: cats", 0.0),
        ("closing", 2, "The end.", 0.5),
        ("closing", 2, "Cats sleep. The end. Or not", 0.25),
        ("capitals", 0, "CAts ARe ANy", 0.6),
        ("capitals", 0, "CATS", 0.5),
        ("capitals", 0, "123", 0.0),
        ("quotes", 0, '"Cats', 0.25),
        ("quotes", 0, '"', 0.5),
        ("quotes", 0, '"Cats" and "dogs"', 0.25),
        ("keyword", 4, "watery waterfall", 0.0),
        ("words", 1, "<think>never closed", 0.0),
        ("words", 1, "word " * 5000, 0.0),
    ],
)
def test_a_reply_without_its_form_is_paid_for_how_near_it_comes(
    form: str, variant: int, reply: str, near: float
) -> None:
    assert closeness(form, variant, reply) == pytest.approx(near)
    assert Instructions(0, {}).grade(asks(form, variant), reply).correct == 0.0


def test_the_form_weighs_four_times_as_much_as_naming_the_subject() -> None:
    env, task = Instructions(0, {}), asks("quotes", 0)
    assert env.grade(task, '"I like cats"').reward == pytest.approx(1.0)
    assert env.grade(task, '"I like dogs"').reward == pytest.approx(0.8)
    assert env.grade(task, "I like CATS").reward == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("reply", "form"),
    [("Snow is cold, snow", 1.0), ("Snow, SNOW, snow! cold", 0.5), ("1. goats 2. goats 3. goats", 0.5), ("12 12", 1.0)],
)
def test_saying_the_same_words_again_and_again_halves_a_form(reply: str, form: float) -> None:
    reply = f"Well, {reply} 1 2 3"
    assert closeness("opening", 1, reply) == form


def test_held_out_subjects_are_never_trained_on() -> None:
    env = Instructions(3, {"forms": "quotes"})
    subjects = {
        split: {env.task(split, index).answer.split(" ")[2] for index in range(size)}
        for split, size in (("train", env.num_tasks), ("heldout", env.num_heldout_tasks))
    }
    assert len(subjects["heldout"]) == 15
    assert len(subjects["train"]) == 105
    assert not subjects["train"] & subjects["heldout"]


def test_every_combination_is_asked_exactly_once() -> None:
    env = Instructions(0, {"forms": "words quotes"})
    prompts = [env.task("train", index).messages[0].content for index in range(env.num_tasks)]
    assert len(prompts) == len(set(prompts)) == 105 * 6 * (5 + 1)


def test_each_form_has_the_same_share_of_any_stretch_and_is_a_stratum() -> None:
    env = Instructions(0, {"forms": "words, json, quotes"})
    row = interleaving_of(env.strata)
    for index in range(300):
        name = env.task("train", index).task_id.partition("/")[0]
        assert env.strata[row.locate(index)[0]].name == name
    first = [env.task("heldout", index).task_id.partition("/")[0] for index in range(30)]
    assert {name: first.count(name) for name in first} == {"words": 10, "json": 10, "quotes": 10}


@pytest.mark.parametrize("forms", ["", "haiku", "words words"])
def test_forms_that_are_unknown_or_named_twice_are_refused(forms: str) -> None:
    with pytest.raises(UserError, match="it must name some of words, list, json"):
        Instructions(0, {"forms": forms})


@pytest.mark.parametrize("name", FORMS)
def test_every_variant_asks_differently_and_has_an_example(name: str) -> None:
    form = FORMS[name]
    variants = range(form.num_variants)
    assert len({form.instruction(variant) for variant in variants}) == form.num_variants
    for variant in variants:
        assert form.closeness(variant, form.example(variant, "cats")) == 1.0


@given(st.sampled_from(list(FORMS)), st.text(min_size=1), st.integers(0, 63))
def test_closeness_lies_between_0_and_1_for_any_text(name: str, text: str, draw: int) -> None:
    form = FORMS[name]
    assert 0.0 <= form.closeness(draw % form.num_variants, text) <= 1.0
