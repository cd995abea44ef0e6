"""The words for bubblewrap."""

from farflung.sandbox.isolation.bubblewrap import bubblewrap_words


def test_everything_is_unshared_and_the_user_namespace_is_spelled_out() -> None:
    words = bubblewrap_words("/usr/bin/bwrap", "/root-folder", ["python", "-c", "x"])
    assert words[0] == "/usr/bin/bwrap"
    assert {"--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"} < set(words)
    assert words[words.index("--ro-bind") : words.index("--ro-bind") + 3] == ["--ro-bind", "/root-folder", "/"]
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert words[words.index("--") + 1 :] == ["python", "-c", "x"]
