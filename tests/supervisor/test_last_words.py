from pathlib import Path

from farflung.supervisor.last_words import find_words, how_it_ended, last_words


def test_the_sentence_of_a_role_is_found_behind_its_traceback() -> None:
    text = "12:00 worker-1 INFO x\nTraceback (most recent call last):\nKeyError: 'a'\nfarflung: disk is full\n"
    assert find_words(text) == "disk is full"


def test_a_sentence_over_several_lines_is_kept_whole() -> None:
    assert find_words("farflung: old\nnoise\nfarflung: 2 settings are wrong:\n  - a\n  - b\n") == (
        "2 settings are wrong:\n  - a\n  - b"
    )


def test_without_a_sentence_the_last_line_with_words_is_taken() -> None:
    assert find_words("Traceback (most recent call last):\n  File x\nKeyError: 'a'\n\n") == "KeyError: 'a'"
    assert find_words("") == ""


def test_words_of_an_earlier_life_are_not_repeated(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    log.write_bytes(b"farflung: first\n")
    since_bytes = log.stat().st_size
    assert last_words(log, since_bytes) == ""
    with log.open("ab") as file:
        file.write(b"x" * 100_000 + b"\nfarflung: second\n")
    assert last_words(log, since_bytes) == "second"
    assert last_words(tmp_path / "absent.log") == ""


def test_signals_have_names() -> None:
    assert how_it_ended(1) == "ended with code 1"
    assert how_it_ended(-11) == "was killed by SIGSEGV"
    assert how_it_ended(-9).startswith("was killed by SIGKILL (")
