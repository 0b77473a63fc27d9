"""A branch's state for reading: its overlay over what its parent held at the base."""

from __future__ import annotations

from types import TracebackType

from ..core.partitioner import partition_for
from ..ports.store import View
from ..runtime.deployment import Deployment
from ..runtime.past import Past
from ..store.opener import open_overlay_reader
from . import branches
from .branches import Branch
from .parent import Refused


class BranchPast:
    """A branch's state; `view` reads it. Close it, or use it as a context manager.

    Positions from the branch's base on are its own, earlier ones its parent's.
    """

    def __init__(self, deployment: Deployment, branch: Branch) -> None:
        self.branch = branch
        self._partitions = deployment.partitions
        self._past = Past(deployment)
        try:
            base = self._past.partition(branch.base.partition).store
            path = branches.overlay_path(deployment, branch.name)
            self._overlay = open_overlay_reader(str(path), base, branch.base.seq - 1)
        except BaseException:
            self._past.close()
            raise
        self.view: View = self._overlay

    def check_covers(self, key: str) -> None:
        """Raises Refused for an aggregate that is not at home on the branch's partition."""
        home = partition_for(key.encode(), self._partitions)
        if home != self.branch.base.partition:
            raise Refused(
                f"{key} is at home on partition {home}, but branch {self.branch.name!r} covers partition "
                f"{self.branch.base.partition}: read it without --branch"
            )

    def close(self) -> None:
        """Frees the stores' files."""
        self._overlay.close()
        self._past.close()

    def __enter__(self) -> BranchPast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_branch(deployment: Deployment, name: str) -> BranchPast:
    """Raises NoBranch, Refused for a branch whose run did not end, StoreError."""
    branch = branches.find_branch(deployment, name)
    if branch.ended is None:
        raise Refused(f"branch {name!r} is {branch.status}: its run did not end, so its state is not whole")
    return BranchPast(deployment, branch)
