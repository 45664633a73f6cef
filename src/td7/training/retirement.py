"""Members that diverge: where hyperparameters vary, only they end; elsewhere, the run does.

Such a member makes no more updates, plays no more episodes and gets no more evaluations. Updates
mask it out, so that nothing of it reaches the others.
"""

from collections.abc import Callable, Sequence

import numpy as np

from td7.engine.cuda import Fetch
from td7.engine.engine import Engine
from td7.errors import NoMemberLeftError, NotFiniteError
from td7.training.config import RunConfig
from td7.training.member import Member
from td7.types import AnyFloat


class Retirement:
    """Ends members, or the run, once something of them is not finite."""

    def __init__(
        self,
        config: RunConfig,
        members: Sequence[Member],
        engine: Engine,
        warn: Callable[[str], None],
    ) -> None:
        self._members = members
        self._names = [config.members.name(id) for id in config.members.ids]
        self._engine = engine
        self._warn = warn
        self.is_possible = bool(config.numbers)

    def check(self) -> None:
        """End all members that have diverged; this waits for the device."""
        for m, member in enumerate(self._members):
            try:
                self._engine.check([] if member.fault else [m])
            except NotFiniteError as error:
                self._end(error)

    def value(self, fetch: Fetch) -> AnyFloat | None:
        """What comes from the device; None if that shows that its member has diverged."""
        try:
            return fetch.value()
        except NotFiniteError as error:
            self._end(error)
        return None

    def weights(self, m: int, fetch: Fetch) -> AnyFloat | None:
        """A member's policy; None if it has diverged."""
        weights = self.value(fetch)
        if weights is None or not self.is_possible or np.isfinite(weights).all():
            return weights
        self.end(m, "the policy")
        return None

    def end(self, m: int, what: str) -> None:
        """End a member of which `what` is not finite now, perhaps because of its losses."""
        if self.value(self._engine.fetch_policy(m)) is not None:
            self._end(self._engine.not_finite(m, what))

    def _end(self, error: NotFiniteError) -> None:
        if not self.is_possible:
            raise error
        member = self._members[error.member]
        if member.fault:
            return
        others_train = any(not (one.fault or one is member) for one in self._members)
        self._warn(f"{error}; it ends{', the others continue' if others_train else ''}")
        member.fault, member.finished, member.owed = f"{error.what} is not finite", True, 0
        self._engine.retire(error.member)

    def check_any_left(self) -> None:
        """Raise if all members have ended."""
        if all(member.fault for member in self._members):
            raise NoMemberLeftError(
                f"all members have diverged, the first of them {self._names[0]}: "
                f"{self._members[0].fault}; start a run with other values"
            )
