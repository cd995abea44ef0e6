"""A role's signs of life, built from what it has counted."""

import threading
import time
from collections.abc import Callable

from farflung.telemetry.activity import ActivityClock
from farflung.wire.node import Heartbeat, Role


class Vitals:
    """Collects what a heartbeat says. `heartbeat` may be called from any thread; sending it is the caller's work."""

    def __init__(
        self, node: str, role: Role, activity: ActivityClock, *, cpu_s: Callable[[], float] = time.process_time
    ) -> None:
        self._node = node
        self._role = role
        self._activity = activity
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._policy_version = -1
        self._alarm = ""
        self._capability_class = ""
        self._tokens = 0
        self._tokens_at_last = 0
        self._busy_s_at_last = 0.0
        self._tokens_per_s = 0.0

    def set_policy_version(self, version: int) -> None:
        """The version in use; -1 until the first call."""
        with self._lock:
            self._policy_version = version

    def set_alarm(self, reason: str) -> None:
        """Why versions are not to be believed; empty = they are."""
        with self._lock:
            self._alarm = reason

    def set_capability_class(self, name: str) -> None:
        """Of the newest lease, in a pool that has classes."""
        with self._lock:
            self._capability_class = name

    def add_tokens(self, num_tokens: int) -> None:
        """Completion tokens sampled, judged or trained on since the last call."""
        with self._lock:
            self._tokens += num_tokens

    def heartbeat(self) -> Heartbeat:
        """The state now; the rate is over the busy time since the last heartbeat in which tokens were counted."""
        activity = self._activity.read()
        with self._lock:
            new_tokens, new_busy_s = self._tokens - self._tokens_at_last, activity.busy_s - self._busy_s_at_last
            if new_tokens > 0 and new_busy_s > 0:
                self._tokens_per_s = new_tokens / new_busy_s
                self._tokens_at_last, self._busy_s_at_last = self._tokens, activity.busy_s
            return Heartbeat(
                node=self._node,
                role=self._role,
                policy_version=self._policy_version,
                activity=activity.current,
                busy_s=activity.busy_s,
                idle_s=activity.idle_s,
                cpu_s=self._cpu_s(),
                tokens=self._tokens,
                tokens_per_s=self._tokens_per_s,
                alarm=self._alarm,
                capability_class=self._capability_class,
            )
