"""How large what goes into a record may be: what is larger is refused before anything is done with it. Pure.

Every log takes records of 8 MiB at least, so that with these bounds no record is refused when its turn commits: that
would take the partition from its owner, with all that runs beside.
"""

from __future__ import annotations

import msgspec

from .events import Event

#: What one step tells the trace: a note, a decision, a cached value, saved fields. Bytes.
STEP_MAX = 512 * 1024
#: Steps of an attempt that are kept for one record; what is beyond begins another. Bytes.
RECORD_MAX = 1024 * 1024
#: A submission or a command as it is read from its topic. Bytes.
INPUT_MAX = 4 * 1024 * 1024
#: A step's name, a key, a resource. Characters.
NAME_MAX = 1000
#: A record's envelope and an event's own fields, roughly. Bytes.
_EVENT = 64


def too_large(what: str, size: int, limit: int) -> str:
    """Why something is refused, with both numbers."""
    return f"{what} has {size} bytes, over the limit of {limit}: keep it elsewhere and record a reference to it"


def name_refusal(what: str, name: str) -> str | None:
    """Why a name cannot be written: it is too long, or holds what is no character; None where it can."""
    if len(name) > NAME_MAX:
        return f"{what} has {len(name)} characters, over the limit of {NAME_MAX}: use a digest of it"
    try:
        name.isascii() or name.encode()
    except UnicodeEncodeError:
        return f"{what} {name!r} holds a lone surrogate, which cannot be recorded"
    return None


def size_of(event: Event) -> int:
    """About how many bytes an event takes."""
    parts = msgspec.structs.astuple(event.body)
    return _EVENT + len(event.step or "") + sum(len(part) for part in parts if isinstance(part, bytes | str))
