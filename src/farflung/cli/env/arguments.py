"""What can be written after `farflung env`."""

import argparse
from typing import TYPE_CHECKING

from farflung.cli.env import help_texts

if TYPE_CHECKING:
    from farflung.cli.arguments import Parser

INDEX_HELP = "folder, or s3://, gs://, az:// with credentials from the environment"
TARGET_HELP = "name of an environment, or a project folder; arguments as --env.KEY VALUE"


def add_actions(env: "Parser") -> None:
    """The actions below `env`."""
    actions = env.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=type(env)
    )

    def action(name: str, short: str, epilog: str) -> "Parser":
        return actions.add_parser(
            name,
            help=short,
            description=short.capitalize() + ".",
            epilog=f"example:\n  {epilog}",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    new = action("new", "a project to start from, which works at once", help_texts.NEW)
    new.add_argument("name", metavar="NAME", help="such as count-letters")
    new.add_argument("--dir", metavar="DIR", help="(default NAME)")

    listing = action("list", "what there is, here or in an index", help_texts.LIST)
    listing.add_argument("--index", metavar="URL", help=INDEX_HELP)
    listing.add_argument("--all", action="store_true", help="every data set of reasoning-gym too")
    listing.add_argument("--json", action="store_true", help="for programs")

    show = action("show", "what it asks: examples, arguments, manifest, README", help_texts.SHOW)
    _add_target(show)
    show.add_argument("--tasks", type=int, default=3, help="examples (default 3)")
    show.add_argument("--json", action="store_true", help="for programs")

    attempt = action("try", "answer a task yourself, or let a model, and see each reward", help_texts.TRY)
    _add_target(attempt)
    attempt.add_argument("--task", type=int, default=0, metavar="INDEX", help="(default 0)")
    attempt.add_argument("--split", choices=("train", "heldout"), default="train", help="(default train)")
    attempt.add_argument("--target-length", type=int, default=0, metavar="N", help="thinking budget, if it has some")
    attempt.add_argument("--answer", metavar="TEXT", help="instead of typing; said at every turn")
    attempt.add_argument("--model", metavar="DIR", help="folder of a model that answers")
    attempt.add_argument("--temperature", type=float, default=1.0, help="of the model (default 1)")
    attempt.add_argument("--max-tokens", type=int, default=256, help="longest answer of the model (default 256)")
    attempt.add_argument("--json", action="store_true", help="for programs")

    test = action("test", "does it keep what an environment promises?", help_texts.TEST)
    _add_target(test)
    test.add_argument("--tasks", type=int, default=24, help="looked at in each split (default 24)")
    test.add_argument("--model", metavar="DIR", help="folder of a model whose tokenizer prompts must fit")
    test.add_argument("--max-prompt-tokens", type=int, default=0, metavar="N", help="longest prompt (default: any)")
    test.add_argument("--max-completion-tokens", type=int, default=0, metavar="N", help="longest turn (default: any)")
    test.add_argument("--max-grade", type=float, default=5.0, metavar="SECONDS", help="to grade once (default 5)")
    test.add_argument("--json", action="store_true", help="for programs")

    publish = action("publish", "test a project folder and put it into an index", help_texts.PUBLISH)
    publish.add_argument("folder", metavar="DIR", help="a project folder")
    publish.add_argument("--index", metavar="URL", required=True, help=INDEX_HELP)
    publish.add_argument("--untested", action="store_true", help="without the tests of `farflung env test`")
    publish.add_argument("--trust", action="store_true", help="run those tests as yourself: your own code only")

    install = action("install", "a package from an index, every byte checked", help_texts.INSTALL)
    install.add_argument("name", metavar="NAME[==VERSION]", help="of a package (default: its newest version)")
    install.add_argument("--index", metavar="URL", required=True, help=INDEX_HELP)
    install.add_argument("--digest", metavar="HEX", help="refuse anything else")
    install.add_argument("--trust", metavar="DIGEST", help="let it do what you may do: no walls, network, your files")

    remove = action("remove", "forget an installed package", help_texts.REMOVE)
    remove.add_argument("name", metavar="NAME")


def _add_target(action: "Parser") -> None:
    action.add_argument("target", metavar="TARGET", help=TARGET_HELP)
    action.add_argument("--entry", metavar="NAME", help="which environment of a project folder (default: the first)")
    action.add_argument("--seed", type=int, default=0, help="of its tasks (default 0)")
    action.add_argument("--trust", action="store_true", help="run a project folder as yourself: your own code only")
