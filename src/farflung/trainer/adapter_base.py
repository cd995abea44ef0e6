"""The weights below an adapter: never written into checkpoints, read from where the model came from.

A checkpoint remembers the sha256 of their bf16 form; a trainer that goes on refuses others. Knows no adapter.
"""

from farflung.errors import UserError

DIGEST = "sha256"


class AdapterBase:
    """A component of the checkpoints of a run that trains an adapter."""

    def __init__(self, sha256: str, source: str) -> None:
        """
        Args:
            sha256: of their bf16 form as safetensors.
            source: where they came from, for people.
        """
        self.sha256 = sha256
        self._source = source

    def snapshot(self) -> dict[str, object]:
        """As `trainer.checkpoint.Component`."""
        return {DIGEST: self.sha256}

    def restore(self, snapshot: dict[str, object]) -> None:
        """Raises UserError: the weights are not those that the adapter was trained beside."""
        expected = snapshot.get(DIGEST)
        if self.sha256 != expected:
            raise UserError(
                f"the weights in {self._source} are not those that this run's adapter was trained beside (sha256 "
                f"{self.sha256[:16]}, not {str(expected)[:16]}): put them back, or start another run"
            )
