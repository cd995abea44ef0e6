"""What can be written after `farflung weights`."""

import argparse
from typing import TYPE_CHECKING

from farflung.cli.weights import help_texts

if TYPE_CHECKING:
    from farflung.cli.arguments import Parser

SOURCE_HELP = "run folder, URL, manifest file, model folder; with @N for version N"


def add_actions(weights: "Parser") -> None:
    """The actions below `weights`."""
    actions = weights.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=type(weights)
    )

    def action(name: str, short: str, description: str) -> "Parser":
        return actions.add_parser(
            name,
            help=short,
            description=description,
            epilog=help_texts.WEIGHTS_EPILOG,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    inspect = action("inspect", "what a version is and how it travels", help_texts.INSPECT)
    inspect.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)
    inspect.add_argument("--tensors", action="store_true", help="every tensor")
    inspect.add_argument("--save", metavar="FILE", help="write the signed manifest there")

    verify = action("verify", "is every byte what the trainer signed?", help_texts.VERIFY)
    verify.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)
    verify.add_argument("--trainer", metavar="ADDRESS", help="of the key that must have signed")
    verify.add_argument("--files", metavar="DIR", help="check the files in this folder instead of chunks")

    diff = action("diff", "what a version changes", help_texts.DIFF)
    diff.add_argument("old", metavar="OLD", help=SOURCE_HELP)
    diff.add_argument("new", metavar="NEW", help="the same, or @N for another version of OLD")
    diff.add_argument("--picture", metavar="FILE", help="density by layer, as .png, .svg or .pdf")
    diff.add_argument("--tensors", action="store_true", help="every tensor that changed")

    for each in (inspect, verify, diff):
        each.add_argument("--json", action="store_true", help="for programs")
