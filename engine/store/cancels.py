"""Cancels that came before their jobs: kept in a partition's store, by job id, bounded."""

from __future__ import annotations

from collections.abc import Callable

from ..core import events as e
from ..core import state as s

#: META keys: how many were ever kept; a cancel by its job's id; the job's id by the cancel's place in the ring.
_COUNT = "cancels"
_BY_JOB = "cancel/"
_BY_PLACE = "cancel@"


class KeptCancels:
    """A ring of `KEPT_CANCELS_MAX` places; `get` and `put` read and write META values, None: none."""

    def __init__(self, get: Callable[[str], bytes | None], put: Callable[[str, bytes | None], None]) -> None:
        self._get = get
        self._put = put
        #: Whether any was ever kept: most partitions never see one, and each new job asks.
        self._any = get(_COUNT) is not None

    def of(self, job_id: str) -> s.KeptCancel | None:
        """The cancel that waits for a job."""
        data = self._get(_BY_JOB + job_id) if self._any else None
        return None if data is None else s.decode_cancel(data)

    def oldest_to_drop(self) -> s.KeptCancel | None:
        """What the next one that is kept takes the place of."""
        found = self._at(self._count() % s.KEPT_CANCELS_MAX)
        return None if found is None else found[1]

    def keep(self, job_id: str, body: e.CancelKept) -> None:
        """Keeps one."""
        number = self._count()
        place = number % s.KEPT_CANCELS_MAX
        dropped = self._at(place)
        if dropped is not None:
            self._put(_BY_JOB + dropped[0], None)
        kept = s.KeptCancel(body.reason, body.actor, body.command_id, number)
        self._put(_BY_JOB + job_id, s.encode_state(kept))
        self._put(f"{_BY_PLACE}{place}", job_id.encode())
        self._put(_COUNT, str(number + 1).encode())
        self._any = True

    def drop(self, job_id: str) -> None:
        """Forgets one, where there is one."""
        if self.of(job_id) is not None:
            self._put(_BY_JOB + job_id, None)

    def _count(self) -> int:
        return int(self._get(_COUNT) or b"0")

    def _at(self, place: int) -> tuple[str, s.KeptCancel] | None:
        """The cancel that still stands at a place: it may have been carried out, or kept anew, since."""
        raw = self._get(f"{_BY_PLACE}{place}")
        job_id = "" if raw is None else raw.decode()
        found = self.of(job_id)
        if found is None or found.number % s.KEPT_CANCELS_MAX != place:
            return None
        return job_id, found
