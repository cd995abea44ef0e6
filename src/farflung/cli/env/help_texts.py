"""What `farflung env --help` says."""

ENV = """\
Write, look at, try, test, publish and install environments. What others
published runs in a child without network, files or keys; nothing of it is run
while it is installed."""

ENV_EPILOG = """\
examples:
  farflung env new count-letters && farflung env test ./count-letters
  farflung env try arithmetic --env.ops '*'
  farflung env publish ./count-letters --index s3://ours/environments
  farflung env install count-letters --index s3://ours/environments"""

NEW = "farflung env new count-letters"
LIST = "farflung env list --index s3://ours/environments"
SHOW = "farflung env show mod-sum --env.num_digits 4"
TRY = "farflung env try sort-digits --task 3 --model runs/demo/model"
TEST = "farflung env test ./count-letters --max-prompt-tokens 64 --json"
PUBLISH = "farflung env publish ./count-letters --index /srv/environments"
INSTALL = "farflung env install count-letters==0.1.0 --index /srv/environments"
REMOVE = "farflung env remove count-letters"
