"""The command line of bubblewrap for one sandbox. Pure: words in, words out.

`--disable-userns` needs `--unshare-user` spelled out beside `--unshare-all`. Landlock and seccomp are not bubblewrap's
affair here: the supervisor inside loads both before the program starts, the same way as without bubblewrap. Nor is the
writable folder, since bubblewrap cannot limit the number of files: it lies under `root` already.
"""

from collections.abc import Sequence

from farflung.sandbox.isolation.layout import WORK
from farflung.sandbox.isolation.namespaces import INNER_ID


def bubblewrap_words(program: str, root: str, command: Sequence[str]) -> list[str]:
    """`command` as process 1 of a sandbox whose root is `root`."""
    identity = ["--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(INNER_ID), "--gid", str(INNER_ID)]
    files = ["--ro-bind", root, "/", "--dev-bind", f"{root}/dev", "/dev"]
    files += ["--bind", f"{root}{WORK}", WORK, "--chdir", WORK]
    ending = ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"]
    return [program, *identity, *files, *ending, "--", *command]
