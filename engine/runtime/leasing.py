"""Leases as a handler holds them: of one resource or of several, all or none; and what it asks for while it does.

Several are taken one by one in the order of their keys' UTF-8 bytes, so that two handlers which ask for the same ones
in whatever order never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

from ..effects.errors import BadStep, LeaseUnavailable

if TYPE_CHECKING:
    from .context import Session


class LeaseHandle:
    """A held resource: `token` fences writes, `lost` turns True when it can no longer be relied on."""

    def __init__(self, resource: str, token: int) -> None:
        self.resource = resource
        self.token = token
        self.lost = False


class Lease:
    """What `ctx.lease` holds: `tokens` maps each resource to its fencing token."""

    def __init__(self, handles: Sequence[LeaseHandle]) -> None:
        self.handles = tuple(handles)
        self.tokens: Mapping[str, int] = MappingProxyType({handle.resource: handle.token for handle in handles})

    @property
    def resource(self) -> str:
        """The one resource that is held. Raises BadStep where there are several."""
        return self._only("resource", "tokens").resource

    @property
    def token(self) -> int:
        """The fencing token of the one resource that is held. Raises BadStep where there are several."""
        return self._only("token", "tokens[RESOURCE]").token

    @property
    def lost(self) -> bool:
        """Whether any of them can no longer be relied on."""
        return any(handle.lost for handle in self.handles)

    def _only(self, asked: str, instead: str) -> LeaseHandle:
        if len(self.handles) > 1:
            held = ", ".join(self.tokens)
            raise BadStep(f"lease.{asked} is for a lease of one resource, and this holds {held}; use lease.{instead}")
        return self.handles[0]


#: The leases whose blocks enclose the code that runs: what it waits for is waited for under these.
_ENCLOSING: ContextVar[frozenset[LeaseHandle]] = ContextVar("rewindq_enclosing_leases", default=frozenset())


def enclosing() -> frozenset[LeaseHandle]:
    """The leases that stay held until what the caller asks for has come or was refused.

    Told by the blocks of `ctx.lease` around it, so that tasks which a handler runs side by side are told apart.
    """
    return _ENCLOSING.get()


def enter(handles: Iterable[LeaseHandle]) -> None:
    """What the caller asks for from now on is asked for under these."""
    _ENCLOSING.set(_ENCLOSING.get().union(handles))


def leave(handles: Iterable[LeaseHandle]) -> None:
    """The caller's blocks of these are over."""
    _ENCLOSING.set(_ENCLOSING.get().difference(handles))


def in_order(resources: Sequence[str]) -> list[str]:
    """The resources in the order in which they are taken, each once. Raises BadStep for what is no resource."""
    if not resources:
        raise BadStep("lease: name at least one resource")
    for resource in resources:
        if not isinstance(resource, str) or not resource or "\0" in resource:
            raise BadStep(f"lease: the resource must be a non-empty text without NUL, got {resource!r}")
        try:
            resource.encode()
        except UnicodeEncodeError as error:
            raise BadStep(f"lease: the resource {resource!r} holds a lone surrogate, which no key can") from error
    return sorted(set(resources), key=str.encode)


class HeldLease:
    """The block of `ctx.lease`. `asks` are the steps and their resources in order; `wait` seconds bound them all."""

    def __init__(self, session: Session, asks: Sequence[tuple[str, str]], ttl: float, wait: float) -> None:
        self._session = session
        self._asks = asks
        self._ttl = ttl
        self._wait = wait
        self._held: list[LeaseHandle] = []

    async def __aenter__(self) -> Lease:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            for step, resource in self._asks:
                # The first one has the whole wait, to the microsecond: it is told in messages.
                left = max(0.0, self._wait - (clock() - began)) if self._held else self._wait
                handle = await self._session.acquire(step, resource, self._ttl, left)
                self._held.append(handle)
                enter((handle,))
            lost = next((handle for handle in self._held if handle.lost), None)
            if lost is not None:
                raise LeaseUnavailable(
                    f"{lost.resource} was lost while the others were waited for", step=self._asks[0][0]
                )
        except BaseException:
            self._give_back()
            raise
        return Lease(self._held)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        leave(self._held)
        while self._held:
            self._session.release(self._held.pop())
