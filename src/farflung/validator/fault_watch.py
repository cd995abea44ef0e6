"""When trouble of one's own is no accident any more: the run then stops with a sentence instead of trying for ever.

| in a row                                                                       | then                |
|--------------------------------------------------------------------------------|---------------------|
| `MAX_NOT_JUDGED` submissions that could not be judged                          | a person must look  |
| `MAX_BROKEN` of which nothing could be graded, nor an empty completion instead | the environment is  |
|                                                                                | broken              |

Completions that cannot be graded while an empty one can are their author's doing and end nothing. This module does not
know how anything is judged.
"""

from farflung.errors import UserError

MAX_NOT_JUDGED = 8
MAX_BROKEN = 3


class FaultWatch:
    """`environment`: the name that a person knows it by."""

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._num_not_judged = 0
        self._num_broken = 0

    def judged(self, *, broken: str = "") -> None:
        """A submission was judged.

        Args:
            broken: what an empty completion ran into, when nothing of the submission could be graded.

        Raises:
            UserError: this has happened too often.
        """
        self._num_not_judged = 0
        self._num_broken = self._num_broken + 1 if broken else 0
        if self._num_broken >= MAX_BROKEN:
            raise UserError(
                f"environment {self._environment} cannot grade anything: {self._num_broken} submissions in a row came "
                f"to nothing, and {broken}; mend it or choose another environment.name"
            )

    def not_judged(self, detail: str) -> None:
        """A submission could not be judged.

        Raises:
            UserError: this has happened too often.
        """
        self._num_not_judged += 1
        if self._num_not_judged >= MAX_NOT_JUDGED:
            raise UserError(
                f"{self._num_not_judged} submissions in a row could not be judged with environment "
                f"{self._environment}, the last one because {detail}; this validator stops, its log has the rest"
            )
