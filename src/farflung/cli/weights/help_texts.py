"""What `farflung weights --help` says."""

WEIGHTS = """\
Look at published versions: what they hold and how they travel, whether every
byte is what the trainer signed, and what one version changes of another.

A SOURCE is a run folder, the address of a coordinator or relay, a manifest file
with the version's files beside it, or, where nothing need be signed, a model
folder or .safetensors file. RUN@7 is version 7; without a number it is the
newest one that is kept."""

WEIGHTS_EPILOG = """\
examples:
  farflung weights inspect runs/demo
  farflung weights verify runs/demo@7
  farflung weights diff runs/demo@6 runs/demo@7 --picture density.png
  farflung weights diff models/base models/tuned --json
  farflung weights plan http://127.0.0.1:7400 --upload-bytes-per-s 2e6"""

INSPECT = """\
What a version is: its files, tensors and chunks, how it travels, which versions
it is made from, who signed it. --save keeps the manifest, which is what
`farflung weights verify` compares files with."""

VERIFY = """\
Check signature and chain, every chunk, every file, and every file that a patch
makes. What is wrong is named down to the chunk and its bytes. Ends with 1 if
anything is wrong or missing. Without --trainer, whoever signed the newest
version is taken for the trainer, and named."""

DIFF = """\
What changed between two versions or models of the same tensors, bit by bit:
the share of elements tensor by tensor, how large the patch is, beside a
snapshot and beside the information in it."""

PLAN = """\
How many workers a pool needs so that its trainer never waits, and how fast the
coordinator and its relays have to send so that no rollout is too stale. With a
coordinator's address the figures are those of the pool as it runs, and each can
be given in its place. Ends with 1 if the upload that is given is not enough."""
