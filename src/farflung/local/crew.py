"""The sampler processes of a local run, with the memory that their weights come through.

Started before anything is known but their number, so that they import what they need while the trainer does; light, so
that this is the first thing that happens. Settings follow when they are asked to work.
"""

from farflung.local.process import SamplerProcess
from farflung.local.shared_weights import SharedWeights


class Crew:
    """Close it: no process is left then."""

    def __init__(self, num_samplers: int, *, num_threads: int, num_versions: int) -> None:
        """
        Args:
            num_threads: torch threads of each.
            num_versions: that may be needed at once, those that are being sampled with aside.
        """
        self.memory = SharedWeights(num_versions + num_samplers)
        self._num_threads = num_threads
        self.processes = [self._start(number) for number in range(num_samplers)]

    def replace(self, number: int) -> SamplerProcess:
        """Another one in the place of one that is dead."""
        self.processes[number] = self._start(number)
        return self.processes[number]

    def close(self) -> None:
        """Let them end."""
        for process in self.processes:
            process.hang_up()
        for process in self.processes:
            process.wait()
        self.memory.close()

    def _start(self, number: int) -> SamplerProcess:
        return SamplerProcess(f"sampler-{number + 1}", self.memory.fd, self._num_threads)


def num_versions(*, is_deterministic: bool, max_staleness: int) -> int:
    """For `Crew`: the newest, those that slots are still to be sampled by, and the one that is being written."""
    return 2 + (max_staleness if is_deterministic else 0)
