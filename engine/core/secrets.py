"""Keeping what a payload's model marks secret out of every sink."""

from __future__ import annotations

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
    elif not path:
        found.append(value if isinstance(value, str) else str(value))
    elif isinstance(value, dict) and path[0] in value:
        _collect(value[path[0]], path[1:], found)


def scrub(data: bytes, secrets: list[str]) -> bytes:
    """Canonical bytes with secret texts masked."""
    for text in secrets:
        data = data.replace(values.encode(text)[1:-1], MASK.encode())
    return data


def scrub_text(text: str, secrets: list[str]) -> str:
    """A message with secret texts masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text
