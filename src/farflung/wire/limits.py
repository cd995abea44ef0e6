"""Bounds that hold before any foreign byte is parsed. Raising one widens what a stranger can make us allocate."""

MAX_ROLLOUTS_PER_FILE = 16_384
MAX_TOKENS_PER_LIST = 1 << 20
"""Longest prompt or completion that a rollout file may carry, tokens."""
MAX_PROOF_BYTES_PER_ROLLOUT = 16 << 20
MAX_NAME_BYTES = 256
"""Longest env, task id, node or key name."""
MAX_UNCOMPRESSED_BYTES = 1 << 30
"""Most memory that the pages of one rollout file may claim."""
