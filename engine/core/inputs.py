"""What a submission must be before the rules of its type are asked, since any program may have written it. Pure."""

from __future__ import annotations

from . import events as e
from . import values
from .refused import JsonRefused
from .sizes import name_refusal


def names_refusal(body: e.JobSubmitted) -> str | None:
    """Why a submission's type or key cannot be recorded; None where they can."""
    refusal = _name_refusal("its type", body.type)
    return refusal if refusal is not None or body.key is None else _name_refusal("its key", body.key)


def _name_refusal(what: str, name: str) -> str | None:
    if not name.strip() or "\0" in name:
        return f"{what} {name[:40]!r} must be a non-empty text without NUL"
    return name_refusal(what, name)


def payload_refusal(data: bytes, body: e.JobSubmitted) -> str | None:
    """Why a payload's bytes are refused: they are no strict JSON, or not those that the digest is of."""
    found = body.payload_ref if body.payload is None else values.digest(body.payload)
    if found != body.digest:
        return f"the submission's digest {body.digest[:80]!r} is not that of its payload ({found})"
    try:
        values.check_json(data)
    except JsonRefused as error:
        return f"payload refused: {error}"
    return None
