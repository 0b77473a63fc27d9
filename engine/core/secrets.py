"""Keeping what a payload's model marks secret out of every sink."""

from __future__ import annotations

import re

from . import values

MASK = "**********"


def masked(value: object, secrets: tuple[str, ...]) -> object:
    """A payload for display: what its model marks secret is masked."""
    for path in secrets:
        value = _mask(value, path.split("."))
    return value


def _mask(value: object, path: list[str]) -> object:
    if isinstance(value, list):
        return [_mask(item, path) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    rest = MASK if len(path) == 1 else _mask(value[path[0]], path[1:])
    return {**value, path[0]: rest}


def secret_texts(payload: bytes, secrets: tuple[str, ...]) -> list[str]:
    """The secret values of a payload, as texts to be scrubbed from what a handler records."""
    if not secrets:
        return []
    found: list[str] = []
    value = values.decode(payload)
    for path in secrets:
        _collect(value, path.split("."), found)
    return [text for text in found if text]


def _collect(value: object, path: list[str], found: list[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, path, found)
    elif isinstance(value, dict):
        # At the path's end, all that the secret holds is secret.
        for item in [value.get(path[0])] if path else value.values():
            _collect(item, path[1:], found)
    elif not path and value is not None:
        found.append(str(value))


def scrub(data: bytes, secrets: list[str]) -> bytes:
    """Canonical bytes with secrets masked: as parts of texts and keys, and as whole values of other types."""
    pattern = _pattern(secrets)
    if pattern is None:
        return data
    return values.encode(_scrubbed(values.decode(data), pattern))


def _scrubbed(value: object, pattern: re.Pattern[str]) -> object:
    if isinstance(value, dict):
        return {pattern.sub(MASK, key): _scrubbed(item, pattern) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrubbed(item, pattern) for item in value]
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    return MASK if pattern.fullmatch(str(value)) else value


def scrub_text(text: str, secrets: list[str]) -> str:
    """A message with secret texts masked."""
    pattern = _pattern(secrets)
    return text if pattern is None else pattern.sub(MASK, text)


def _pattern(secrets: list[str]) -> re.Pattern[str] | None:
    # The longest first: a secret may begin with another one, whose mask would leave the rest to be read.
    return re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))) if secrets else None
