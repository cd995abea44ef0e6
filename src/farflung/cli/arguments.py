"""The command line: commands, their help, and which words are settings.

A word with a dot, `--trainer.optimizer.lr`, is always a setting of the configuration and never an option of a command,
so settings may stand anywhere.
"""

import argparse
import difflib
import re
import textwrap
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from farflung.api.tokens import TOKEN_ROLES, VARIABLE
from farflung.cli import help_texts
from farflung.cli.env import help_texts as env_help_texts
from farflung.cli.env.arguments import add_actions
from farflung.cli.weights import arguments as weights_arguments
from farflung.cli.weights import help_texts as weights_help_texts
from farflung.errors import UserError

ADAPTER_HELP = "folder of a LoRA adapter as peft saves it, applied unmerged"
LOCAL_HELP = "trainer and samplers alone, on this one machine: no coordinator, no validators"
_SETTING = re.compile(r"--[\w-]+\.")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps our line breaks, and every command on one line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._action_max_length = 16  # argparse forgets the indent of commands


class Parser(argparse.ArgumentParser):
    """Reports wrong usage as one sentence, like every other wrong input."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{_clearer(message)}; `{self.prog} --help` explains")


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 (it has no public name)


def split_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(words for the parser, settings): a setting takes the word after it unless it holds a "=" itself."""
    plain: list[str] = []
    settings: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not _SETTING.match(word):
            plain.append(word)
            continue
        settings.append(word)
        if "=" not in word and rest and not rest[0].startswith("--"):
            settings.append(rest.pop(0))
    return plain, settings


def build_parser(version: str, shipped: Sequence[str]) -> Parser:
    """The parser of everything but settings.

    Args:
        shipped: names of configurations that come with the package.
    """
    parser = Parser(
        prog="farflung",
        description=help_texts.DESCRIPTION,
        epilog=help_texts.EPILOG,
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"farflung {version}")
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    _add_demo(commands)
    _add_run(commands, shipped)
    for role, text in help_texts.ROLES.items():
        epilog = f"example:\n  {text.example}\n\n{help_texts.SETTINGS_HELP}"
        command = _command(commands, role, text.short, text.description, epilog)
        _role_arguments(command, needs_config=role in ("coordinator", "trainer"), takes_url=role != "coordinator")
        if role in TOKEN_ROLES:
            command.add_argument(
                "--token-file",
                metavar="FILE",
                help=f"holds the pool's {role} token (default: {VARIABLE}, or tokens/{role} in CONFIG's run folder)",
            )
    _add_status(commands)
    _add_audit(commands)
    _add_verify(commands)
    _add_data(commands)
    _add_rollouts(commands)
    _add_calibrate(commands)
    _add_plot(commands)
    _add_forward(commands)
    _add_settings(commands)
    _add_model(commands)
    _add_sft(commands)
    _add_eval(commands)
    _add_env(commands)
    _add_serve(commands)
    _add_relay(commands)
    _add_weights(commands)
    _add_chat(commands)
    _add_grade(commands)
    _add_sandbox(commands)
    return parser


def _add_demo(commands: Commands) -> None:
    short = "watch a tiny model get better, in a few minutes on two cores"
    demo = _command(commands, "demo", short, help_texts.DEMO, help_texts.DEMO_EPILOG)
    demo.add_argument("--seed", type=int, help="another run of the same kind (default 0)")
    demo.add_argument("--name", help="folder under runs/ (default demo, or demo-SEED)")
    demo.add_argument("--local", action="store_true", help=LOCAL_HELP)
    demo.add_argument("--dry-run", action="store_true", help="print the resolved configuration and stop")


def _add_run(commands: Commands, shipped: Sequence[str]) -> None:
    names = textwrap.fill(", ".join(shipped), 76, subsequent_indent="  ", break_on_hyphens=False)
    epilog = help_texts.RUN_EPILOG.format(shipped=names)
    run = _command(commands, "run", "start all roles of a configuration on this machine", help_texts.RUN, epilog)
    run.add_argument("config", metavar="CONFIG", help="TOML file, or the name of a shipped one")
    run.add_argument("--local", action="store_true", help=LOCAL_HELP)
    run.add_argument("--relays", type=int, metavar="N", help="as many relays between coordinator and workers")
    run.add_argument("--dry-run", action="store_true", help="print the resolved configuration and stop")


def _add_status(commands: Commands) -> None:
    epilog = "example:\n  farflung status http://127.0.0.1:7400"
    status = _command(commands, "status", "ask a coordinator what goes on", help_texts.STATUS, epilog)
    status.add_argument("url", metavar="URL", help="address of the coordinator")


def _add_audit(commands: Commands) -> None:
    audit = _command(
        commands, "audit", "compute again what a coordinator did", help_texts.AUDIT, help_texts.AUDIT_EPILOG
    )
    audit.add_argument(
        "source", metavar="RUN|URL", help="folder of a run that stands still, or a coordinator's address"
    )
    audit.add_argument("--json", action="store_true", help="for programs")


def _add_verify(commands: Commands) -> None:
    short = "check a rollout file by hand"
    verify = _command(commands, "verify", short, help_texts.VERIFY, help_texts.VERIFY_EPILOG)
    verify.add_argument("file", metavar="FILE", help="rollout file (.parquet) of a proven pool")
    verify.add_argument("--model", required=True, metavar="DIR", help="folder with the version it claims")
    verify.add_argument("--seed", required=True, metavar="HEX", help="draw seed of its lease")
    verify.add_argument("--thresholds", metavar="FILE", help="of farflung calibrate (default: the shipped ones)")
    verify.add_argument("--pool", metavar="URL|RUN", help="of its rules: a coordinator or a run's folder")
    verify.add_argument("--tasks", metavar="N,N", help="task indices of its lease (default: by their names)")
    verify.add_argument("--temperature", type=float, help="of the pool (default: of --pool, or 1)")
    verify.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")
    verify.add_argument("--json", action="store_true", help="for programs")


def _add_calibrate(commands: Commands) -> None:
    short = "thresholds for proofs on a model"
    calibrate = _command(commands, "calibrate", short, help_texts.CALIBRATE, help_texts.CALIBRATE_EPILOG)
    calibrate.add_argument("model", metavar="MODEL", help="folder of a model")
    calibrate.add_argument("--out", metavar="FILE", default="thresholds.json", help="(default thresholds.json)")
    calibrate.add_argument("--env", metavar="NAME", help="take prompts from an environment")
    calibrate.add_argument("--submissions", type=int, default=8, help="of each kind (default 8)")
    calibrate.add_argument("--rollouts", type=int, default=8, help="of each submission (default 8)")
    calibrate.add_argument("--max-tokens", type=int, default=64, help="of a completion (default 64)")
    calibrate.add_argument(
        "--scheme", choices=("sketch", "toploc"), default="sketch", help="of commitments (default sketch)"
    )
    calibrate.add_argument("--temperature", type=float, default=1.0, help="of the pool (default 1)")
    calibrate.add_argument("--threads", type=int, default=1, help="CPU threads (default 1)")


def _add_data(commands: Commands) -> None:
    epilog = help_texts.DATA_EPILOG
    data = _command(commands, "data", "tasks from published data sets", help_texts.DATA, epilog)
    actions = data.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser)
    take = _command(actions, "import", "rows of a published schema as tasks", help_texts.DATA_IMPORT, epilog)
    take.add_argument("format", metavar="FORMAT", choices=("auto", *help_texts.DATA_FORMATS), help="schema, or auto")
    take.add_argument("files", metavar="FILE", nargs="+", help=".jsonl, .json or .parquet, or folders of them")
    take.add_argument("--licence", default="unknown", help="of the source, for the record")
    choose = _command(actions, "filter", "tasks that a model solves sometimes", help_texts.DATA_FILTER, epilog)
    choose.add_argument("dataset", metavar="DATASET", help="folder of farflung data import")
    choose.add_argument("--model", required=True, metavar="DIR", help="folder of the model that is asked")
    choose.add_argument("--samples", type=int, default=8, help="completions per task (default 8)")
    choose.add_argument("--keep", default="0.125:0.5", metavar="LOW:HIGH", help="share right (default 0.125:0.5)")
    choose.add_argument("--max-tokens", type=int, default=256, help="longest completion (default 256)")
    choose.add_argument("--temperature", type=float, default=1.0, help="of the draws (default 1)")
    choose.add_argument("--work", metavar="DIR", help="where samples are kept (default OUT-samples)")
    clean = _command(actions, "decontaminate", "leave out what tests have", help_texts.DATA_DECONTAMINATE, epilog)
    clean.add_argument("dataset", metavar="DATASET", help="folder of farflung data import")
    clean.add_argument("--against", metavar="PATH", action="append", default=[], help="one more test set; repeatable")
    clean.add_argument("--words", type=int, default=13, help="words in a row that count (default 13)")
    show = _command(actions, "show", "what is in a data set", help_texts.DATA_SHOW, epilog)
    show.add_argument("dataset", metavar="DATASET", help="folder of farflung data import")
    for action in (take, choose, clean):
        action.add_argument("--out", required=True, metavar="DIR", help="new folder")
    for action in (take, clean, show):
        action.add_argument("--json", action="store_true", help="for programs")


def _add_rollouts(commands: Commands) -> None:
    epilog = help_texts.ROLLOUTS_EPILOG
    rollouts = _command(commands, "rollouts", "accepted rollouts for others", help_texts.ROLLOUTS, epilog)
    actions = rollouts.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    publish = _command(actions, "publish", "a data set with a card", help_texts.ROLLOUTS_PUBLISH, epilog)
    publish.add_argument("--licence", default="apache-2.0", help="for the card (default apache-2.0)")
    export = _command(actions, "export", "another system's schema", help_texts.ROLLOUTS_EXPORT, epilog)
    export.add_argument("--schema", choices=("prime-rl",), default="prime-rl", help="(default prime-rl)")
    for action in (publish, export):
        action.add_argument("run", metavar="RUN", help="folder of a run that is not running")
        action.add_argument("--out", required=True, metavar="DIR", help="new folder")


def _add_plot(commands: Commands) -> None:
    plot = _command(commands, "plot", "pictures of one run or of several", help_texts.PLOT, help_texts.PLOT_EPILOG)
    plot.add_argument("runs", metavar="RUN", nargs="+", help="folder of a run")
    plot.add_argument("--out", metavar="PATH", help="(default plot.png in the run's folder, or here for several)")
    plot.add_argument("--each", metavar="DIR", help="a file per picture instead of one page")
    plot.add_argument("--format", choices=("png", "svg", "pdf"), default="png", help="of files that are not named")
    axes = ("versions", "time", "samples", "tokens")
    plot.add_argument("--x", choices=axes, type=_axis, default="versions", help="x axis (steps is versions too)")
    plot.add_argument("--smooth", type=float, metavar="KEEP", help="weight of the past, 0 = none (default: by length)")
    plot.add_argument(
        "--metrics", metavar="A,B", help="these pictures or figures only, e.g. reward,grad_norm,eval/accuracy"
    )
    plot.add_argument("--group", action="store_true", help="names that differ in a last number: mean and band")


def _add_forward(commands: Commands) -> None:
    short = "send a run's figures to a tracker"
    forward = _command(commands, "forward", short, help_texts.FORWARD, help_texts.FORWARD_EPILOG)
    forward.add_argument("run", metavar="RUN", help="folder of a run")
    forward.add_argument("--to", required=True, choices=("tensorboard", "wandb", "trackio"), help="the tracker")
    forward.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    forward.add_argument("--leash-fd", type=int, help=argparse.SUPPRESS)


def _add_settings(commands: Commands) -> None:
    short = "what can be set: types, defaults, bounds, meaning"
    settings = _command(commands, "settings", short, help_texts.SETTINGS, help_texts.SETTINGS_EPILOG)
    settings.add_argument("word", metavar="WORD", nargs="?", help="of a name, or of a meaning (default: all)")
    settings.add_argument("--markdown", action="store_true", help="all of them as docs/settings.md")


def _add_model(commands: Commands) -> None:
    model = _command(commands, "model", "bring models in, look at them", help_texts.MODEL, help_texts.MODEL_EPILOG)
    actions = model.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser)
    bring = actions.add_parser("import", help="a GGUF file, packaged or hub model to a Hugging Face folder")
    bring.add_argument(
        "source", metavar="SOURCE", help="a .gguf file, a folder, a packaged model, or organisation/name[@revision]"
    )
    bring.add_argument("out", metavar="OUT", nargs="?", help="folder to write (default models/<name>)")
    look = actions.add_parser("inspect", help="shape, tokenizer and template of a folder")
    look.add_argument("source", metavar="FOLDER")
    convert = actions.add_parser("convert", help="the same folder in another precision")
    convert.add_argument("source", metavar="FOLDER")
    convert.add_argument("out", metavar="OUT", help="folder to write")
    for action in (bring, convert):
        action.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of the weights")
        action.add_argument("--replace", action="store_true", help="a model folder that is there already")
        action.add_argument("--template", metavar="FILE", help="take this chat template, whatever the model's say")


def _add_eval(commands: Commands) -> None:
    evaluate = _command(
        commands, "eval", "how good a model is, with intervals", help_texts.EVAL, help_texts.EVAL_EPILOG
    )
    evaluate.add_argument("model", metavar="MODEL", help="folder of a model")
    evaluate.add_argument("--adapter", metavar="DIR", help=ADAPTER_HELP)
    evaluate.add_argument("--env", required=True, metavar="NAME", help="environment; its arguments as --env.KEY VALUE")
    evaluate.add_argument("--tasks", type=int, help="at most so many tasks (default 128)")
    evaluate.add_argument("--samples", type=int, help="completions per task (default 4)")
    evaluate.add_argument("--k", type=_integers, metavar="K,K", help="for pass@k and maj@k (default: up to samples)")
    evaluate.add_argument("--split", choices=("heldout", "train"), help="(default heldout)")
    evaluate.add_argument("--temperature", type=float, help="of the draws (default 1)")
    evaluate.add_argument("--max-tokens", type=int, help="longest completion (default 256)")
    evaluate.add_argument("--batch-rows", type=int, help="completions in flight (default 64)")
    evaluate.add_argument("--seed", type=int, help="of tasks and draws (default 0)")
    evaluate.add_argument("--harness", metavar="COMMAND", help="a program that asks the model by OpenAI's API instead")
    evaluate.add_argument("--harness-timeout", type=float, metavar="S", help="of one attempt (default 600)")
    evaluate.add_argument("--harness-parallel", type=int, metavar="N", help="attempts at a time (default 8)")
    evaluate.add_argument("--out", metavar="DIR", help="(default evals/<model>-<environment>-<digest>)")
    evaluate.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_env(commands: Commands) -> None:
    short = "write, try, test and share environments"
    add_actions(_command(commands, "env", short, env_help_texts.ENV, env_help_texts.ENV_EPILOG))


def _add_sft(commands: Commands) -> None:
    sft = _command(commands, "sft", "supervised fine-tuning, for a start", help_texts.SFT, help_texts.SFT_EPILOG)
    sft.add_argument("model", metavar="MODEL", help="folder of a model")
    sft.add_argument("data", metavar="DATA", help=".jsonl or .parquet file of examples")
    sft.add_argument("--out", metavar="DIR", required=True, help="where the run and its model go")


def _add_serve(commands: Commands) -> None:
    serve = _command(commands, "serve", "the OpenAI API over a model", help_texts.SERVE, help_texts.SERVE_EPILOG)
    serve.add_argument("model", metavar="MODEL", help="folder of a model")
    serve.add_argument("--adapter", metavar="DIR", help=ADAPTER_HELP)


def _add_relay(commands: Commands) -> None:
    relay = _command(commands, "relay", "pass new weights on", help_texts.RELAY, help_texts.RELAY_EPILOG)
    _role_arguments(relay, needs_config=False, takes_url=True)
    relay.add_argument(
        "--upstream", metavar="URLS", default="", help="coordinators and relays to fetch from, with commas between"
    )


def _add_weights(commands: Commands) -> None:
    short = "published versions: look, check, compare"
    epilog = weights_help_texts.WEIGHTS_EPILOG
    weights_arguments.add_actions(_command(commands, "weights", short, weights_help_texts.WEIGHTS, epilog))


def _add_chat(commands: Commands) -> None:
    chat = _command(commands, "chat", "talk to a model", help_texts.CHAT, help_texts.CHAT_EPILOG)
    chat.add_argument("model", metavar="MODEL", help="folder of a model")
    chat.add_argument("--adapter", metavar="DIR", help=ADAPTER_HELP)
    chat.add_argument("--system", metavar="TEXT", help="system message")
    chat.add_argument("--temperature", type=float, default=0.7, help="0 = greedy (default 0.7)")
    chat.add_argument("--max-tokens", type=int, default=512, help="longest answer (default 512)")
    chat.add_argument("--seed", type=int, help="the same seed and words give the same answers")
    chat.add_argument(
        "--thinking-budget", "--budget", type=int, metavar="TOKENS", help="tell the model how long to think"
    )
    chat.add_argument("--budget-told", metavar="TEXT", help="in these words, with {target} for the number")
    chat.add_argument("--budget-where", choices=("user", "start", "system"), default="user", help="(default user)")


def _add_grade(commands: Commands) -> None:
    grade = _command(commands, "grade", "is this answer right?", help_texts.GRADE, help_texts.GRADE_EPILOG)
    kinds = grade.add_subparsers(title="what", dest="kind", metavar="WHAT", required=True, parser_class=Parser)
    math = kinds.add_parser("math", help="a final answer in mathematics", allow_abbrev=False)
    math.add_argument("--gold", metavar="TEXT", help="the reference")
    math.add_argument("--answer", metavar="TEXT", help="what to grade; of a completion, what it marks as its answer")
    math.add_argument("--file", metavar="FILE", help='JSON lines with "gold" and "answer", and "policy" if wanted')
    math.add_argument("--policy", metavar="KEY=VALUE", action="append", default=[], help="e.g. percent=ignore")
    math.add_argument("--exact", action="store_true", help="exact rules alone, no second opinion")
    math.add_argument("--json", action="store_true", help="an object for each verdict")
    code = kinds.add_parser("code", help="a program, by its tests, in a sandbox", allow_abbrev=False)
    code.add_argument("--tests", metavar="FILE", required=True, help="JSON; docs/sandbox.md has the three kinds")
    code.add_argument("--program", metavar="FILE", required=True, help="Python source")
    code.add_argument("--cpu", metavar="SECONDS", type=float, help="for one test (default 10)")
    code.add_argument("--unsafe-no-sandbox", action="store_true", help="run it as yourself: your own code only")
    code.add_argument("--json", action="store_true", help="an object with the outcome of each test")


def _add_sandbox(commands: Commands) -> None:
    short = "what can this machine shut in?"
    sandbox = _command(commands, "sandbox", short, help_texts.SANDBOX, help_texts.SANDBOX_EPILOG)
    kinds = sandbox.add_subparsers(title="what", dest="kind", metavar="WHAT", required=True, parser_class=Parser)
    doctor = kinds.add_parser("doctor", help="tell the walls, and try every attack against them", allow_abbrev=False)
    doctor.add_argument("--backend", choices=("auto", "bubblewrap", "namespaces"), default="auto", help="default: auto")
    doctor.add_argument("--json", action="store_true", help="one object")


def _axis(text: str) -> str:
    """A version is what a step of training makes, and some people call it so."""
    return "versions" if text == "steps" else text


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _role_arguments(command: Parser, *, needs_config: bool, takes_url: bool) -> None:
    command.add_argument(
        "config", metavar="CONFIG", nargs=None if needs_config else "?", help="TOML file, or the name of a shipped one"
    )
    if takes_url:
        command.add_argument(
            "--coordinator", metavar="URL", help="its address (default: host and port of CONFIG's [coordinator])"
        )
    command.add_argument("--log", metavar="FILE", help="write the log there instead of to the terminal")
    command.add_argument("--leash-fd", type=int, help=argparse.SUPPRESS)
    command.add_argument("--activity", metavar="FILE", help=argparse.SUPPRESS)


def _command(commands: Commands, name: str, short: str, description: str, epilog: str) -> Parser:
    return commands.add_parser(
        name,
        help=short,
        description=description,
        epilog=epilog,
        allow_abbrev=False,
        formatter_class=_Formatter,
    )


def _clearer(message: str) -> str:
    """argparse's message, with a suggestion where a choice was mistyped."""
    choice = re.fullmatch(r"argument COMMAND: invalid choice: '(.*)' \(choose from (.*)\)", message)
    if choice is None:
        return message.replace("the following arguments are required:", "missing:")
    known = [name.strip(" '") for name in choice[2].split(",")]
    close = difflib.get_close_matches(choice[1], known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    return f"unknown command {choice[1]!r}: {hint}"
