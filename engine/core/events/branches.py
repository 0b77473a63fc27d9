"""The branch registry's events."""

from __future__ import annotations

from typing import ClassVar

from .base import Body


class BranchCreated(Body, frozen=True):
    """A branch leaves its parent before event `base_seq`; the envelope names the job and attempt it came from.

    `changes` are the payload's changed paths; `host` and `pid` name the process that runs it. `request` is the id of
    the request for it, where one was given.
    """

    topic: ClassVar[str] = "branches"
    parent: str
    base_partition: int
    base_seq: int
    mode: str
    app: str
    lifecycle: str
    domain: str
    group: str
    changes: bytes | None
    host: str
    pid: int
    request: str | None = None


class BranchEnded(Body, frozen=True):
    """The branch's run is over and all of its events are in its topics."""

    topic: ClassVar[str] = "branches"
    outcome: str
    events: int
    divergences: int
    reason: str | None
