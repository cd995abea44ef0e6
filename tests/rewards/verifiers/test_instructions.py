# ruff: noqa: RUF001 - sentences in their own letters
"""Every kind of instruction: texts that keep to it, and texts that nearly do."""

import json
from typing import Any

import pytest

from farflung.rewards.verifiers.instructions.grade import grade_instructions
from farflung.rewards.verifiers.instructions.kinds import KINDS
from farflung.rewards.verifiers.instructions.language import language_of
from farflung.rewards.verifiers.instructions.units import num_sentences, paragraphs, words


def reference(*constraints: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(
        {"instruction_id_list": [kind for kind, _ in constraints], "kwargs": [each for _, each in constraints]}
    )


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["Moon", "tide"]}, "The moons pull the TIDES.", "The moon shines."),
    ("keywords:frequency", {"keyword": "ha", "frequency": 3, "relation": "at least"}, "Ha ha, haha", "ha ha"),
    ("keywords:frequency", {"keyword": "ha", "frequency": 3, "relation": "less than"}, "ha ha", "ha ha ha"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "concatenate", "A Cat!"),
    ("keywords:forbidden_words", {"forbidden_words": ["c++"]}, "c+ or c", "I like c++, too"),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 2, "let_relation": "at least"}, "Eve", "even"[1:]),
    ("language:response_language", {"language": "de"}, "Das ist nicht der Hund von dem Mann.", "This is not the dog."),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "Dr. Who? Yes!",
        "Dr. Who is 1.5.",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "One, e.g. this",
        "One. Two.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n***\nb"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", "a\n\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "a well-known 3rd", "don't go"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        "First.\n\n\n**Then**, second.",
        "Then.\n\nFirst.",
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        "[name], [the address]",
        "[name], [ad\ndress], []",
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n**P.S.** Write!", "Bye. P.S. no\nP.S."),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "x\n* a\n  - b", "* a\n- b\n- c"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "---\n**bold**\n- a", "-a"),
    ("detectable_format:constrained_response", {}, "Well. My answer is no.", "my answer is no."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b c**", "*a* and ** ** or ***"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "## Section 1\nx\n**Section 2**",
        "Section 1\nsee Section 2",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', 'Here: {"a": 1}'),
    ("detectable_format:json_format", {}, "[1, 2]", "[1, 2"),
    ("detectable_format:title", {}, "<<Of mice>>\ntext", "<<>>\n<<a\n>>"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:two_responses", {}, "a\n ****** \nb", "a\n******\nb\n******\nc"),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "What is 1+1?"},
        "what is 1+1? It is 2.",
        "It is 2. What is 1+1?",
    ),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So.\nthe END."', "The end. Or not"),
    ("startend:quotation", {}, ' "Quoth." ', '"a'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "NASA and ESA",
        "Nasa, ESA",
    ),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "A b", "A B"),
    ("change_case:english_capital", {}, "HELLO, 3 CATS!", "HELLO, 3 CATs!"),
    ("change_case:english_lowercase", {}, "hello, 3 cats!", "привет"),
    ("punctuation:no_comma", {}, "one; two", "one, two"),
]


@pytest.mark.parametrize(("kind", "arguments", "kept", "broken"), CASES)
def test_a_constraint_holds_for_what_keeps_to_it_and_for_nothing_else(
    kind: str, arguments: dict[str, Any], kept: str, broken: str
) -> None:
    told = reference((kind, arguments))
    assert grade_instructions(told, kept).verdict == 1.0
    assert grade_instructions(told, f"<think>{broken}, [\n******\n</think>{kept}").verdict == 1.0, "thoughts are free"
    assert grade_instructions(told, broken).verdict == 0.0


def test_every_kind_has_a_case() -> None:
    assert {kind for kind, *_ in CASES} == set(KINDS)


def test_arguments_that_are_null_are_absent() -> None:
    told = reference(("punctuation:no_comma", {"num_words": None, "relation": None}))
    assert grade_instructions(told, "fine").verdict == 1.0


@pytest.mark.parametrize(
    "told",
    [
        reference(),
        reference(("keywords:unknown", {})),
        reference(("keywords:existence", {})),
        reference(("keywords:existence", {"keywords": []})),
        reference(("punctuation:no_comma", {"colour": "red"})),
        reference(("length_constraints:number_words", {"num_words": -1, "relation": "at least"})),
        reference(("length_constraints:number_words", {"num_words": 3, "relation": "about"})),
        reference(("language:response_language", {"language": "xx"})),
        '{"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}',
        reference(*[("punctuation:no_comma", {})] * 33),
        "no json",
    ],
)
def test_instructions_that_cannot_be_checked_are_no_grade(told: str) -> None:
    assert grade_instructions(told, "anything").verdict is None


def test_every_instruction_counts_and_partial_credit_is_a_choice() -> None:
    told = reference(("punctuation:no_comma", {}), ("startend:end_checker", {"end_phrase": "bye"}))
    assert grade_instructions(told, "a, bye").verdict == 0.0
    assert grade_instructions(told, "a, bye", partial=True).verdict == 0.5
    assert "1 of 2" in grade_instructions(told, "a, bye").detail


def test_loose_forgives_introduction_farewell_and_emphasis_and_strict_does_not() -> None:
    told = reference(("startend:quotation", {}))
    wrapped = 'Sure, here it is:\n*"Quoth."*\nHope that helps!'
    assert grade_instructions(told, wrapped).verdict == 0.0
    assert grade_instructions(told, wrapped, loose=True).verdict == 1.0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("...", 0),
        ("One", 1),
        ("One. Two", 2),
        ("Mr. J. Smith met Prof. Lee, i.e. two people.", 1),
        ("It costs 3.50 at example.com today.", 1),
        ('"Stop!" he said. "Why?"', 3),
        ("1. First item.\n2. Second item.", 2),
        ("It was 1984. Then 1985.", 2),
        ("So did I. You too.", 2),
        ("Wait... what?! No.", 3),
        ("今日は。元気ですか？はい", 3),
    ],
)
def test_sentences_are_counted_by_the_stated_rule(text: str, count: int) -> None:
    assert num_sentences(text) == count


def test_words_and_paragraphs_are_counted_by_the_stated_rule() -> None:
    assert words("Don't - well-known, 3.5 a_b") == ["Don't", "well-known", "3", "5", "a_b"]
    assert paragraphs("\n\na\nb\n \n\nc\n") == ["a\nb", "c"]


SENTENCES = {
    "ar": "هذا هو الكتاب الذي كان على الطاولة في البيت",
    "bg": "Това е книгата, която е на масата в къщата и ще я прочета",
    "bn": "এটি একটি বই যা টেবিলের উপর আছে",
    "de": "Das ist das Buch, das auf dem Tisch im Haus liegt, und ich lese es",
    "en": "This is the book that was on the table in the house and it is good",
    "es": "Este es el libro que está en la mesa de la casa y no lo he leído",
    "fa": "این کتابی است که بر روی میز در خانه بود",
    "fi": "Tämä on kirja joka oli pöydällä ja se on hyvä mutta en ole lukenut sitä",
    "fr": "C'est le livre qui est sur la table dans la maison et je ne le lis pas",
    "gu": "આ ઘરમાં ટેબલ પર પડેલું પુસ્તક છે",
    "he": "זה הספר שהיה על השולחן בבית",
    "hi": "यह वह किताब है जो घर में मेज पर थी",
    "it": "Questo è il libro che è sul tavolo della casa e non lo ho letto",
    "ja": "これは家のテーブルの上にあった本です",
    "kn": "ಇದು ಮನೆಯಲ್ಲಿ ಮೇಜಿನ ಮೇಲಿದ್ದ ಪುಸ್ತಕ",
    "ko": "이것은 집 안 탁자 위에 있던 책입니다",
    "ml": "ഇത് വീട്ടിലെ മേശപ്പുറത്തുണ്ടായിരുന്ന പുസ്തകമാണ്",
    "mr": "हे घरात टेबलावर असलेले पुस्तक आहे आणि ते चांगले आहे",
    "ne": "यो घरमा टेबलमा भएको किताब हो र यो राम्रो छ",
    "pa": "ਇਹ ਉਹ ਕਿਤਾਬ ਹੈ ਜੋ ਘਰ ਵਿੱਚ ਮੇਜ਼ ਉੱਤੇ ਸੀ",
    "pl": "To jest książka, która leży na stole w domu i nie jest zła",
    "pt": "Este é o livro que está na mesa da casa e não o li ainda em um dia",
    "ru": "Это книга, которая была на столе в доме, и она мне не нравится",
    "sw": "Hiki ni kitabu ambacho kilikuwa juu ya meza katika nyumba na kwa hivyo ni kizuri",
    "ta": "இது வீட்டில் மேசையில் இருந்த புத்தகம்",
    "te": "ఇది ఇంట్లో టేబుల్ మీద ఉన్న పుస్తకం",
    "th": "นี่คือหนังสือที่อยู่บนโต๊ะในบ้าน",
    "uk": "Це книга, яка була на столі в будинку, і вона мені не подобається",
    "ur": "یہ وہ کتاب ہے جو گھر میں میز پر تھی",
    "vi": "Đây là cuốn sách ở trên bàn trong nhà và tôi đã đọc nó",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_is_recognised_as_its_language(language: str) -> None:
    assert language_of(SENTENCES[language]) == language


def test_nothing_is_recognised_in_digits_or_in_what_could_be_anything() -> None:
    assert language_of("12345 !!") is None
    assert language_of("xyzzy plugh") is None


@pytest.mark.parametrize("reply", ["\u200b", "\u2060", "\x00", ".", "  \u200d "])
def test_a_reply_that_nobody_can_read_keeps_to_nothing(reply: str) -> None:
    assert grade_instructions(reference(("punctuation:no_comma", {})), reply).verdict == 0.0
    fewer = {"num_words": 3, "relation": "less than"}
    assert grade_instructions(reference(("length_constraints:number_words", fewer)), reply).verdict == 0.0


def test_a_forbidden_word_is_found_whatever_is_hidden_in_it() -> None:
    told = reference(("keywords:forbidden_words", {"forbidden_words": ["cat"]}))
    assert grade_instructions(told, "a c\u200bat").verdict == 0.0
