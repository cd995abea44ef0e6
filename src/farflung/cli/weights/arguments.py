"""What can be written after `farflung weights`."""

import argparse
from typing import TYPE_CHECKING

from farflung.cli.weights import help_texts

if TYPE_CHECKING:
    from farflung.cli.arguments import Parser

SOURCE_HELP = "run folder, URL, manifest file, model folder; with @N for version N"


PLAN_FIGURES = (
    ("step-s", float, "seconds between versions when the trainer does not wait"),
    ("batch-tokens", float, "sampled tokens that a version is trained on"),
    ("useful-share", float, "of sampled tokens, those that are trained on"),
    ("judge-s", float, "from receipt to verdict (default 5)"),
    ("max-staleness", int, "versions"),
    ("lease-tokens", float, "sampled tokens of one lease"),
    ("tokens-per-s", float, "of the slowest worker"),
    ("patch-bytes", int, "of one version"),
    ("snapshot-bytes", int, "of the whole weights"),
    ("chunk-bytes", int, "of one chunk"),
    ("fan-out", int, "below the coordinator and each relay (default 4)"),
    ("depth", int, "hops from the coordinator to a worker"),
    ("latency-s", float, "of one hop (default 0.05)"),
    ("upload-bytes-per-s", float, "what is there: is it enough?"),
)


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

    plan = action("plan", "how many workers, how fast a network?", help_texts.PLAN)
    plan.add_argument("url", metavar="URL", nargs="?", help="of a coordinator, for figures as they are")
    for name, kind, text in PLAN_FIGURES:
        plan.add_argument(f"--{name}", type=kind, metavar="N", help=text)

    for each in (inspect, verify, diff, plan):
        each.add_argument("--json", action="store_true", help="for programs")
