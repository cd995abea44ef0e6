from pathlib import Path

from farflung.supervisor.last_words import find_words, how_it_ended, last_words

SIGKILL, SIGSEGV = -9, -11


def test_the_sentence_of_a_role_is_found_behind_its_traceback() -> None:
    text = "Traceback (most recent call last):\nKeyError: 'a'\nfarflung: disk is full\n"
    assert find_words(text, 1) == "disk is full"
    assert find_words(text, SIGKILL) == "disk is full"


def test_a_sentence_over_several_lines_is_kept_whole() -> None:
    assert find_words("farflung: old\nnoise\nfarflung: 2 settings are wrong:\n  - a\n  - b\n", 2) == (
        "2 settings are wrong:\n  - a\n  - b"
    )


def test_without_a_sentence_the_last_line_that_is_no_log_line_is_taken() -> None:
    log_line = "2026-08-03 12:00:00,123 worker-1 INFO farflung.worker.service: slot 17"
    assert (
        find_words(f"Traceback (most recent call last):\n  File x\nKeyError: 'a'\n\n{log_line}\n", 1) == "KeyError: 'a'"
    )
    assert find_words("Fatal Python error: Segmentation fault\n", SIGSEGV) == "Fatal Python error: Segmentation fault"
    assert find_words(f"{log_line}\n", 1) == ""
    assert find_words("", 1) == ""


def test_nothing_is_made_up_for_a_process_that_was_told_to_end() -> None:
    assert find_words("listening on http://127.0.0.1:7400\n", SIGKILL) == ""
    assert find_words("listening on http://127.0.0.1:7400\n", 0) == ""


def test_words_of_an_earlier_life_are_not_repeated(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    log.write_bytes(b"farflung: first\n")
    since_bytes = log.stat().st_size
    assert last_words(log, 1, since_bytes) == ""
    with log.open("ab") as file:
        file.write(b"x" * 100_000 + b"\nfarflung: second\n")
    assert last_words(log, 1, since_bytes) == "second"
    assert last_words(tmp_path / "absent.log", 1) == ""


def test_signals_have_names() -> None:
    assert how_it_ended(1) == "ended with code 1"
    assert how_it_ended(-11) == "was killed by SIGSEGV"
    assert how_it_ended(-9).startswith("was killed by SIGKILL (")
