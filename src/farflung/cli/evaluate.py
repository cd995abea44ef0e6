"""`farflung eval MODEL --env NAME`: how good is a model, with what certainty."""

import hashlib
import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from farflung.cli.env_args import parse_env_args
from farflung.cli.evaluate_report import Report
from farflung.config.base import Config
from farflung.envs.base import Environment, Split, graders_of
from farflung.envs.episode import num_agents_of
from farflung.envs.graders.registry import require_ready
from farflung.envs.registry import load_environment
from farflung.errors import UserError
from farflung.evaluation.records import SampleFile, SampleRow
from farflung.model.description import model_name
from farflung.wire.pool import EnvArg

CHUNK_ROLLOUTS = 128
"""Samples between two times that results are made durable."""


class EvalConfig(Config):
    """Options of the command."""

    env: str
    adapter: str = ""
    """Folder; empty = none."""
    tasks: int = Field(128, ge=1, le=1_000_000)
    samples: int = Field(4, ge=1, le=4096)
    k: tuple[int, ...] = ()
    """For pass@k and maj@k; empty = powers of 4 up to samples, and samples."""
    split: str = Field("heldout", pattern="^(heldout|train)$")
    temperature: float = Field(1.0, gt=0, le=10)
    max_tokens: int = Field(256, ge=1)
    batch_rows: int = Field(64, ge=1, le=4096)
    seed: int = Field(0, ge=0)
    harness: str | None = None
    """Command that asks the model in place of the environment; None = none, and an empty one is refused."""
    harness_timeout: float = Field(600.0, gt=0)
    """Seconds of one attempt."""
    harness_parallel: int = Field(8, ge=1, le=1024)


HARNESS_OPTIONS = {"harness", "harness_timeout", "harness_parallel"}


def run_eval(arguments: Namespace, settings: list[str]) -> int:
    """Sample, grade, score; interrupted, the same command goes on."""
    config, env_args = _config(arguments), parse_env_args(settings, "eval")
    environment = load_environment(config.env, config.seed, env_args)
    require_ready(graders_of(environment))
    path = Path(arguments.model)
    out = Path(arguments.out) if arguments.out else Path("evals", _name(path, config, env_args))
    rows, num_skipped = sample_into(out, path, config, environment, env_args)
    report = Report(env=config.env, split=config.split, num_samples=config.samples, ks=_ks(config))
    result = report.result(rows, num_skipped)
    (out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    if arguments.json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        for table in report.tables(rows, num_skipped):
            Console(file=sys.stdout).print(table)
        sys.stdout.write(f"every sample: {out / 'samples.jsonl'}\n")
    return 0


def sample_into(
    out: Path, model: Path, config: EvalConfig, environment: Environment, env_args: Mapping[str, EnvArg]
) -> tuple[list[SampleRow], int]:
    """(samples of a folder, those that were there and what was missing; tasks whose prompt is too long)."""
    rows_per_task = config.samples * num_agents_of(environment)
    file = SampleFile(out / "samples.jsonl", _header(model, config, env_args), rows_per_task)
    if config.harness is not None:
        _ask_harness(model, config, config.harness, environment, file, out)
        return file.rows, 0
    num_skipped = _sample(model, config, environment, file)
    return file.rows, num_skipped


def _config(arguments: Namespace) -> EvalConfig:
    given = {name: getattr(arguments, name) for name in EvalConfig.model_fields if getattr(arguments, name) is not None}
    config = checked_config(given)
    if config.harness is not None and config.temperature != 1.0:
        raise UserError("--temperature and --harness do not go together: each request of a harness names its own")
    wrong = [k for k in config.k if not 1 <= k <= config.samples]
    if wrong:
        raise UserError(f"--k has {wrong[0]}: it must lie between 1 and --samples, which is {config.samples}")
    return config


def checked_config(options: Mapping[str, Any]) -> EvalConfig:
    """Raises UserError: an option out of its bounds, by the name that it has on the command line."""
    try:
        return EvalConfig.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise UserError(f"--{option} is {first['input']}: {first['msg'].lower()}") from error


def _name(path: Path, config: EvalConfig, env_args: dict[str, EnvArg]) -> str:
    """Readable, and its own for every combination of options."""
    options = json.dumps([str(path.resolve()), _options(config, {"k"}), env_args], sort_keys=True)
    digest = hashlib.sha256(options.encode()).hexdigest()[:8]
    return f"{model_name(path)}-{config.env.replace(':', '-')}-{digest}"


def _options(config: EvalConfig, without: set[str]) -> dict[str, Any]:
    """Those that matter, as they are named in files."""
    unused = set() if config.adapter else {"adapter"}
    unused |= {"harness_timeout", "harness_parallel"} if config.harness is not None else HARNESS_OPTIONS
    return config.model_dump(exclude=without | unused)


def _header(path: Path, config: EvalConfig, env_args: Mapping[str, EnvArg]) -> dict[str, Any]:
    """What fixes the samples. The weights by their size and time, since hashing gigabytes would cost minutes."""
    folders = [path, Path(config.adapter)] if config.adapter else [path]
    weights = [file for folder in folders for file in sorted(folder.glob("*.safetensors"))]
    return {
        "model": str(path.resolve()),
        "weights": [[file.name, file.stat().st_size, int(file.stat().st_mtime)] for file in weights],
        **_options(config, {"k", "tasks", "batch_rows"}),
        "env_args": env_args,
    }


def _sample(path: Path, config: EvalConfig, environment: Environment, file: SampleFile) -> int:
    """Fill the file; returns how many tasks have a prompt that is too long."""
    import torch

    from farflung.engine.base import SamplingParams
    from farflung.engine.torch_engine import TorchEngine
    from farflung.evaluation.benchmark import BenchmarkPlan, sample_chunks
    from farflung.model.adapter_files import load_adapter_folder
    from farflung.model.folder import load_folder
    from farflung.model.tokenizer import Tokenizer
    from farflung.model.vocabulary import end_of_sequence, never_drawn

    model = load_folder(path)
    tokenizer = Tokenizer.from_files(model.tokenizer_files)
    engine = TorchEngine(model.config, max_batch_rows=config.batch_rows, num_threads=torch.get_num_threads())
    engine.load_weights(model.state, 0)
    if config.adapter:
        engine.load_adapter(load_adapter_folder(Path(config.adapter), model.config), 0)
    params = SamplingParams(
        temperature=config.temperature,
        max_completion_tokens=config.max_tokens,
        eos_token_ids=end_of_sequence(tokenizer, model.config),
        reserved_token_ids=never_drawn(tokenizer, model.config),
    )
    plan = BenchmarkPlan(
        split=_split(config),
        num_tasks=_num_tasks(config, environment),
        num_samples=config.samples,
        chunk_tasks=max(1, CHUNK_ROLLOUTS // config.samples),
        draw_seed=hashlib.sha256(f"farflung/eval/1/{config.seed}".encode()).digest(),
        max_prompt_tokens=model.config.max_context_tokens - config.max_tokens,
    )
    done = {row.task for row in file.rows}
    num_skipped = 0
    sys.stderr.write(
        f"{plan.num_tasks} tasks x {plan.num_samples} samples of at most {config.max_tokens} tokens"
        f"{f', {len(done)} tasks are there already' if done else ''}\n"
    )
    with _progress() as progress:
        bar = progress.add_task("tasks", total=plan.num_tasks, completed=len(done))
        for chunk in sample_chunks(engine, environment, tokenizer, params, plan, done):
            file.append(chunk.rows)
            num_skipped += chunk.num_skipped
            progress.advance(bar, len({row.task for row in chunk.rows}) + chunk.num_skipped)
            if not progress.console.is_terminal:
                sys.stderr.write(f"{progress.tasks[0].completed:.0f}/{plan.num_tasks} tasks\n")
    return num_skipped


def _ask_harness(
    path: Path, config: EvalConfig, command: str, environment: Environment, file: SampleFile, out: Path
) -> None:
    """Fill the file."""
    from farflung.cli.evaluate_harness import HarnessPlan, sample_by_harness

    done = {row.task for row in file.rows}
    num_tasks = _num_tasks(config, environment)
    plan = HarnessPlan(
        command=command,
        timeout_s=config.harness_timeout,
        num_parallel=config.harness_parallel,
        num_samples=config.samples,
        split=_split(config),
        indices=[index for index in range(num_tasks) if index not in done],
        max_tokens=config.max_tokens,
        seed=config.seed,
    )
    adapter = Path(config.adapter) if config.adapter else None
    with _progress() as progress:
        bar = progress.add_task("tasks", total=num_tasks, completed=len(done))
        sample_by_harness(plan, path, adapter, environment, file, out, lambda count: progress.advance(bar, count))


def _split(config: EvalConfig) -> Split:
    return "heldout" if config.split == "heldout" else "train"


def _num_tasks(config: EvalConfig, environment: Environment) -> int:
    size = environment.num_heldout_tasks if config.split == "heldout" else environment.num_tasks
    return min(config.tasks, size)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(file=sys.stderr), transient=True)


def _ks(config: EvalConfig) -> tuple[int, ...]:
    if config.k:
        return tuple(sorted(set(config.k)))
    powers = [4**power for power in range(6) if 4**power < config.samples]
    return tuple(sorted({*powers, config.samples}))
