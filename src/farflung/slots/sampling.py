"""Which submissions get the dear checks, and at which of their rollouts these look.

    audited    u(submission digest) < rate,  u = the first 8 bytes of HMAC(epoch's secret, submission digest) / 2^64
               or its node had fewer than `audit_first` accepted submissions when it handed this one in

The digest covers the file, and the secret is not known before the epoch is over: so nobody knows while there is still
time to hand in something else, and anyone can see afterwards that the coordinator did not choose. Pure.
"""

from farflung.slots.seeds import keyed_hash
from farflung.wire.check_rules import CheckRules


def audited_rollout(
    secret: bytes, submission_digest: str, *, num_accepted_before: int, num_rollouts: int, rules: CheckRules
) -> int | None:
    """Position of the rollout that is sampled again; None when the submission is not audited."""
    digest = keyed_hash(secret, "farflung/audited/1", submission_digest)
    share = int.from_bytes(digest[:8], "big") / 2**64
    if num_accepted_before >= rules.audit_first and share >= rules.audit_rate:
        return None
    return int.from_bytes(digest[8:16], "big") % num_rollouts
