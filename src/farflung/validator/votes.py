"""A validator's votes where several judge: sealed when it has judged, shown when it is asked to.

The salt follows from the key and the submission, so a validator that is started again, and judges again, comes to the
same commitment and can still show what is behind it. Does not know the network.
"""

import hashlib
from collections import OrderedDict

from farflung.identity.keys import NodeKey
from farflung.identity.signing import sign
from farflung.wire.canonical import tagged_digest
from farflung.wire.panel import Commitment, Reveal, seal
from farflung.wire.verdict import Judgement

MAX_HELD = 256
"""Votes that are kept; of submissions that ended otherwise nobody asks any more."""


class SealedVotes:
    """
    Args:
        signs: whether commitments are signed, as in every pool that is not open.
    """

    def __init__(self, key: NodeKey, *, signs: bool) -> None:
        self._key = key
        self._signs = signs
        self._judgements: OrderedDict[str, Judgement] = OrderedDict()

    @property
    def held(self) -> list[str]:
        """Submissions whose votes are not shown yet; the newest."""
        return list(self._judgements)[-64:]

    def sealed(self, judgement: Judgement) -> Commitment:
        """Keep the vote, and commit to it."""
        verdict = judgement.verdict
        digest = verdict.submission_digest
        self._judgements[digest] = judgement
        while len(self._judgements) > MAX_HELD:
            self._judgements.popitem(last=False)
        commitment = Commitment(
            pool_digest=verdict.pool_digest,
            submission_digest=digest,
            validator=verdict.validator,
            sealed=seal(digest, verdict.validator, verdict.outcome, verdict.rewards_digest, self._salt(digest)),
        )
        return sign(commitment, self._key) if self._signs else commitment

    def shown(self, digest: str) -> Reveal | None:
        """The vote, to be shown now; None when it is not kept."""
        judgement = self._judgements.get(digest)
        return None if judgement is None else Reveal(judgement=judgement, salt=self._salt(digest))

    def forget(self, digest: str) -> None:
        """It was shown, or nobody wants it."""
        self._judgements.pop(digest, None)

    def _salt(self, digest: str) -> str:
        """Only the key's owner can compute it."""
        message = bytes.fromhex(tagged_digest("farflung/vote-salt/1", digest.encode()))
        return hashlib.sha256(self._key.sign(message)).hexdigest()
