"""Texts that are kept: bounded, and made of what can be written. Pure."""

from __future__ import annotations

#: Longest message kept of a failure.
MESSAGE_MAX = 2000


def bounded(message: str, limit: int = MESSAGE_MAX) -> str:
    """A message cut to a bound, saying so; what UTF-8 cannot hold is escaped, so that it can be recorded."""
    message = message.encode("utf-8", "backslashreplace").decode()
    return message if len(message) <= limit else f"{message[:limit]}… ({len(message)} characters)"


def text_of(error: BaseException) -> str:
    """An exception's message, also of one whose own text cannot be made."""
    try:
        return str(error)
    except Exception as failed:  # noqa: BLE001 - the user's own `__str__`
        return f"(its message cannot be read: {type(failed).__qualname__})"
