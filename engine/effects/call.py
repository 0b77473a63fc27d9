"""Calling an effect's function: its arguments' digest, its time-out, and what its end means.

A time-out and a broken connection leave the outcome unknown. An exception otherwise says that the call was not done;
who cannot know raises `rewindq.InDoubt`, or classifies the exception as `FailureClass.IN_DOUBT`.
"""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError

from ..core import values
from ..core.secrets import MASK
from .marked import dumped
from .threads import Threads, contained

#: Longest request kept for people; the digest covers all of it.
META_MAX = 400

#: Answers that are read back as they are.
_SAME = (str, int, float, bool)
#: The connection broke or the time ran out after the request may have been sent.
UNKNOWN_OUTCOME: tuple[type[BaseException], ...] = (
    TimeoutError,
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
    EOFError,
)


class Signature(NamedTuple):
    """What of a function matters here."""

    is_async: bool
    takes_key: bool
    takes_token: bool
    answer: type[BaseModel] | None


@lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> Signature:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    try:
        returns = typing.get_type_hints(getattr(function, "__func__", function)).get("return")
    except (TypeError, NameError, AttributeError):
        returns = None
    typed = isinstance(returns, type) and issubclass(returns, BaseModel)
    return Signature(
        inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__),
        "idempotency_key" in parameters,
        "fencing_token" in parameters,
        returns if typed else None,
    )


def signature_of(function: Callable[..., Any]) -> Signature:
    """The function's traits, looked up once. Unhashable callables are read anew."""
    try:
        return _signature(function)
    except TypeError:
        return _signature.__wrapped__(function)


def encode_request(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, bytes]:
    """`(digest, short metadata)` of a call's arguments; secrets count in the digest and are masked in the metadata.

    Raises values.ValueRefused naming the argument that cannot be recorded.
    """
    secrets: list[bytes] = []
    shown = values.encode({"args": _masked(args, secrets), "kwargs": _masked(dict(kwargs), secrets)})
    digest = values.digest(b"\0".join((name.encode(), shown, *secrets)))
    if len(shown) > META_MAX:
        shown = values.encode({"shortened": shown[:META_MAX].decode("utf-8", "ignore"), "bytes": len(shown)})
    return digest, shown


def encode_compensation(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], timeout: float | None, idempotent: bool
) -> bytes:
    """What undoes a call, with what it needs: it may run in another process, long after the handler is gone.

    Raises values.ValueRefused where an argument cannot be recorded; a secret must not be.
    """
    secrets: list[bytes] = []
    given = {"args": _masked(args, secrets), "kwargs": _masked(dict(kwargs), secrets)}
    if secrets:
        raise values.ValueRefused("", "a secret is not recorded; pass a reference, and let the compensation look it up")
    return values.encode({"call": name, **given, "timeout": timeout, "idempotent": idempotent})


def _masked(value: Any, secrets: list[bytes]) -> Any:
    """The value with secrets masked; their hashes are added to `secrets`, in an order that the value decides."""
    if isinstance(value, (SecretStr, SecretBytes)):
        raw = value.get_secret_value()
        secrets.append(sha256(raw.encode() if isinstance(raw, str) else raw).digest())
        return MASK
    if isinstance(value, BaseModel):
        return {name: _masked(getattr(value, name), secrets) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: _masked(value[key], secrets) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [_masked(item, secrets) for item in value]
    return value


def encode_answer(answer: Any) -> bytes | None:
    """An answer as canonical bytes, None for None. Raises values.ValueRefused."""
    if answer is None:
        return None
    if isinstance(answer, BaseModel):
        return values.encode(dumped(answer))
    return values.encode(answer)


def decode_answer(function: Callable[..., Any], data: bytes | None) -> Any:
    """A recorded answer, as the type that the function's return annotation promises."""
    if data is None:
        return None
    value = values.decode(data)
    model = signature_of(function).answer
    if model is None:
        return value
    try:
        return model.model_validate(value)
    except ValidationError:
        if MASK.encode() not in data:
            raise
        return model.model_construct(**value)  # its marked fields are masked, whatever their types


def as_recorded(function: Callable[..., Any], answer: Any, data: bytes | None) -> Any:
    """The answer as a retry or a replay will have it: a tuple is a list, a model without a return annotation a dict."""
    return answer if type(answer) in _SAME or data is None else decode_answer(function, data)


async def invoke(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    key: str,
    token: int | None,
    timeout: float | None,
    threads: Threads | None,
) -> Any:
    """Calls an effect's function, a plain one in a thread under its key. Raises TimeoutError after `timeout` s."""
    traits = signature_of(function)
    extra = dict(kwargs)
    if traits.takes_key:
        extra["idempotency_key"] = key
    if traits.takes_token:
        extra["fencing_token"] = token
    if traits.is_async:
        pending = function(*args, **extra)
    elif threads is not None:
        pending = threads.run(key, partial(function, *args, **extra))
    else:
        call = partial(contained, partial(function, *args, **extra))
        pending = asyncio.get_running_loop().run_in_executor(None, call)
    if timeout is None:
        return await pending
    try:
        async with asyncio.timeout(timeout):
            return await pending
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {timeout:g} s") from error
