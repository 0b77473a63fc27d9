"""Forks that are asked for under a request id: one branch each, however often and by how many it is asked for."""

from __future__ import annotations

from contextlib import closing

from ..core import values
from ..runtime.deployment import Deployment
from .branches import Branch, branch_stem, list_branches
from .parent import Refused

#: Seconds beyond the handler's limit that another process may take to end the fork.
_GRACE = 30.0


def name_of(job_id: str, request: str) -> str:
    """The name of a request's branch, the same for all that ask under it."""
    return f"{branch_stem(job_id)}-{values.digest(request.encode())[7:15]}"


def find(deployment: Deployment, branch: Branch) -> Branch | None:
    """The branch that was made for the same request; None where there is none, or the request has no id.

    Raises Refused when the request's id was used for another fork.
    """
    if branch.born.request is None:
        return None
    for known in list_branches(deployment):
        if known.born.request == branch.born.request:
            if _asked(known) != _asked(branch):
                raise Refused(
                    f"the request id was used for another fork of job {known.job_id}, branch {known.name!r}: "
                    "another fork needs another --request-id"
                )
            return known
    return None


def _asked(branch: Branch) -> tuple[object, ...]:
    born = branch.born
    return branch.job_id, branch.attempt, born.parent, branch.base, born.mode, born.app, born.changes


def ended(deployment: Deployment, branch: Branch, limit: float) -> Branch:
    """The branch once its run has ended. Raises Refused when it does not within `limit` seconds and a grace."""
    topic, monotonic = deployment.topics.branches, deployment.clock.monotonic
    deadline = monotonic() + limit + _GRACE
    with closing(deployment.log.reader({(topic, 0): deployment.log.bounds(topic, 0)[1]})) as reader:
        while True:
            now = next((known for known in list_branches(deployment) if known.same_run(branch)), None)
            if now is None:
                raise Refused(f"the fork of this request came to no run: branch {branch.name!r} is gone")
            if now.ended is not None:
                return now
            if now.status == "incomplete" or monotonic() > deadline:
                raise Refused(
                    f"the fork of this request is {now.status}: see `rewindq branch show {branch.name}`, or delete the "
                    "branch and ask again"
                )
            reader.poll(1, 1.0)
