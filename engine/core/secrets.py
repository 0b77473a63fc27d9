"""Keeping what a payload's model marks secret out of every sink."""

from __future__ import annotations

import re
from collections.abc import Callable

from . import values

MASK = "**********"
#: Shorter secrets stand in too many texts by chance to be looked for in names, answers and results.
NAMED_MIN = 4
MARKED_NAME = "the job's key or resource holds what its payload's model marks secret; use a digest of it"
_PLACE = re.compile(re.escape(MASK) + r"\{(\d{1,6})\}")


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


def scrub(data: bytes, secrets: list[str], *, texts_only: bool = False) -> bytes:
    """Canonical bytes with secrets masked: as parts of texts and keys, and as whole values of other types.

    `texts_only` leaves other types as they are, for values that a model will read.
    """
    pattern = _pattern(secrets)
    if pattern is None:
        return data
    if texts_only:
        return values.encode(_texts(values.decode(data), lambda text: pattern.sub(MASK, text)))
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
    pattern = _pattern(secrets) if secrets else None
    return text if pattern is None else pattern.sub(MASK, text)


def _pattern(secrets: list[str]) -> re.Pattern[str] | None:
    # The longest first: a secret may begin with another one, whose mask would leave the rest to be read.
    return re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))) if secrets else None


def holds_secret(value: object, secrets: list[str]) -> bool:
    """Whether a text, or one anywhere in a value, holds a secret of NAMED_MIN characters or more."""
    if not secrets:
        return False
    if isinstance(value, str):
        return any(len(secret) >= NAMED_MIN and secret in value for secret in secrets)
    if isinstance(value, dict):
        return any(holds_secret(key, secrets) or holds_secret(item, secrets) for key, item in value.items())
    return isinstance(value, list | tuple) and any(holds_secret(item, secrets) for item in value)


def hide(data: bytes, secrets: list[str]) -> bytes:
    """Canonical bytes whose texts hold the place of each secret instead of it, so that `reveal` can put it back.

    Only who has the payload can do that: what is recorded and read by others is masked.
    """
    if not secrets:
        return data
    places = {secret: f"{MASK}{{{at}}}" for at, secret in enumerate(secrets) if len(secret) >= NAMED_MIN}
    pattern = _pattern(list(places))
    if pattern is None:
        return data
    return values.encode(_texts(values.decode(data), lambda text: pattern.sub(lambda found: places[found[0]], text)))


def hide_all(data: bytes, secrets: list[str]) -> bytes:
    """As `hide`; what cannot be given a place, short secrets and values that are no texts, is masked for good."""
    short = [secret for secret in secrets if len(secret) < NAMED_MIN]
    return scrub(hide(scrub(data, short), secrets), [secret for secret in secrets if len(secret) >= NAMED_MIN])


def reveal(data: bytes, secrets: list[str]) -> bytes:
    """What `hide` made of the bytes undone. A place that the secrets do not have stays masked."""
    if not secrets or MASK.encode() not in data:
        return data

    def put_back(found: re.Match[str]) -> str:
        at = int(found[1])
        return secrets[at] if at < len(secrets) else found[0]

    return values.encode(_texts(values.decode(data), lambda text: _PLACE.sub(put_back, text)))


def _texts(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, dict):
        return {change(key): _texts(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value
