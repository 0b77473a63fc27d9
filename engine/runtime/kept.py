"""What the trace keeps of an exception: enough to see why it was retried or not, and to raise it again in a replay.

A canonical value:

    {"rule": "app rule for shop.Declined", "retry_after": 2.5, "text": "card refused", "trace": "Traceback …",
     "chain": [{"module": "shop", "class": "Declined", "message": "card refused", "args": ["card refused"],
                "attributes": {"code": 51}}, {"by": "cause", …}]}

The chain goes from the exception to its causes (`by` says whether explicit or by context), a group's members stand in
`group`. `args` and `attributes` are there as far as they can be recorded. `text` and `trace` are what a handler that
catches it is given. The payload's secrets are masked in all, so that who has the payload can put them back: a handler
sees the same texts live and in a replay.
"""

from __future__ import annotations

import math
import traceback
from typing import Any

from pydantic import ValidationError

from ..core import values
from ..core.secrets import hide_all
from ..core.texts import bounded, text_of

#: Most exceptions of a chain and members of a group, longest message, most bytes of arguments and of attributes.
CHAIN_MAX, GROUP_MAX, MESSAGE_MAX, PARTS_MAX = 6, 8, 500, 2000
#: Characters of a traceback.
TRACE_MAX = 2000


def keep(error: BaseException, rule: str, secrets: list[str]) -> bytes:
    """An exception as the trace keeps it. `rule` says what made its failure class."""
    chain: list[dict[str, Any]] = []
    seen: set[int] = set()
    following: BaseException | None = error
    by: str | None = None
    while following is not None and id(following) not in seen and len(chain) < CHAIN_MAX:
        seen.add(id(following))
        entry = _entry(following)
        chain.append(entry if by is None else {**entry, "by": by})
        following, by = _next(following)
    kept: dict[str, Any] = {"chain": chain, "rule": bounded(rule, MESSAGE_MAX)}
    kept |= {"text": bounded(text_of(error)), "trace": trace_of(error)}
    retry_after = retry_after_of(error)
    if retry_after is not None:
        kept["retry_after"] = retry_after
    return hide_all(values.encode(kept), secrets)


def trace_of(error: BaseException) -> str:
    """The end of an exception's traceback, with its causes: a file's place and line are those of the first time."""
    # The innermost frames of the exception itself come last.
    return "".join(traceback.format_exception(error))[-TRACE_MAX:].encode(errors="replace").decode()


def retry_after_of(error: BaseException) -> int | float | None:
    """The seconds that the other side asks to wait, as the exception carries them; None where it does not."""
    found = getattr(error, "retry_after", None)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return found


def describe(error: BaseException) -> str:
    """An exception's message; a model's complaints by path, without the refused values."""
    if isinstance(error, ValidationError):
        parts = [
            f"{'.'.join(map(str, item['loc'])) or 'payload'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        ]
        return "; ".join(parts)
    return text_of(error)


def full_name(error: BaseException) -> str:
    """The module and name of an exception's class."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _next(error: BaseException) -> tuple[BaseException | None, str | None]:
    if error.__cause__ is not None:
        return error.__cause__, "cause"
    return (None, None) if error.__suppress_context__ else (error.__context__, "context")


def _entry(error: BaseException) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "module": type(error).__module__,
        "class": type(error).__qualname__,
        "message": bounded(describe(error), MESSAGE_MAX),
    }
    if isinstance(error, BaseExceptionGroup):
        # Its arguments hold its members, which stand for themselves.
        entry["group"] = [_entry(member) for member in error.exceptions[:GROUP_MAX]]
    elif (args := _recorded(list(error.args))) is not None:
        entry["args"] = args
    plain = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    found = {name: value for name, value in plain.items() if _recorded(value) is not None}
    if found and (attributes := _recorded(found)) is not None:
        entry["attributes"] = attributes
    return entry


def _recorded(value: Any) -> Any:
    """The value, None where it cannot be recorded, is too large or is None."""
    try:
        data = values.encode(value)
    except values.ValueRefused:
        return None
    return values.decode(data) if len(data) <= PARTS_MAX else None
