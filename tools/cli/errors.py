"""Expected errors: how they end the program. Anything else is a fault of Rewindq and shows its traceback."""

from __future__ import annotations

from rewindq.engine.codec.avro import UndecodableRecord
from rewindq.engine.core.merge import GapInLog
from rewindq.engine.core.names import BadName
from rewindq.engine.core.position import BadPosition
from rewindq.engine.core.refused import ValueRefused
from rewindq.engine.core.times import BadTime
from rewindq.engine.ports.blobs import BlobMissing
from rewindq.engine.ports.log import GroupActive, LogError, OffsetsMoved
from rewindq.engine.ports.store import StoreError
from rewindq.engine.replay.branches import BranchExists
from rewindq.engine.replay.parent import Refused
from rewindq.engine.replay.points import BadPoint, HalfDone
from rewindq.engine.replay.recording import NoRecording
from rewindq.engine.runtime.app import AppError
from rewindq.engine.runtime.client import CommandRefusedError, NotSucceeded
from rewindq.engine.runtime.deployment import BodyTooLarge, NotCreated
from rewindq.engine.runtime.past import NotFound
from rewindq.engine.runtime.quarantines import NotQuarantined
from rewindq.engine.runtime.recover import StoreAhead
from rewindq.engine.runtime.rewinding import SkipNotAgreed
from rewindq.engine.runtime.settings import SettingsError
from rewindq.engine.runtime.submitting import SubmissionRefused

DONE = 0
FAILED = 1
WRONG_USAGE = 2
DIFFERS = 3
REFUSED = 4
NO_SUCH_THING = 5


class CommandFailed(Exception):
    """The command could not be carried out; the message says why."""


class GuardRefused(Exception):
    """A guard refused the command; the message says which and what would be allowed."""


#: Exit codes by kind of error; a subclass that stands here too must stand before its base.
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (GuardRefused, REFUSED),
    (GroupActive, REFUSED),
    (OffsetsMoved, REFUSED),
    (SkipNotAgreed, REFUSED),
    (Refused, REFUSED),
    (HalfDone, REFUSED),
    (BranchExists, REFUSED),
    (BadPoint, WRONG_USAGE),
    (CommandRefusedError, REFUSED),
    (NotQuarantined, REFUSED),
    (NotFound, NO_SUCH_THING),
    (NoRecording, NO_SUCH_THING),
    (NotCreated, NO_SUCH_THING),
    (SettingsError, WRONG_USAGE),
    (AppError, WRONG_USAGE),
    (SubmissionRefused, WRONG_USAGE),
    (BadName, WRONG_USAGE),
    (BadPosition, WRONG_USAGE),
    (BadTime, WRONG_USAGE),
    (ValueRefused, WRONG_USAGE),
    (CommandFailed, FAILED),
    (NotSucceeded, FAILED),
    (BodyTooLarge, FAILED),
    (BlobMissing, FAILED),
    (LogError, FAILED),
    (StoreError, FAILED),
    (StoreAhead, FAILED),
    (GapInLog, FAILED),
    (UndecodableRecord, FAILED),
    # TimeoutError is one; others are of folders and files that cannot be read or written, and name them.
    (OSError, FAILED),
)


def exit_code(error: Exception) -> int | None:
    """The exit code of an expected error, None for one that nobody expected."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), None)
