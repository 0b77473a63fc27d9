"""What a handler sees: `Context` (for plain `def`, `BlockingContext` in `blocking.py` is the same without `await`).

It only names and checks steps; a mode's `Session` does the rest: the live worker's, a replay's, a fork's.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from pydantic import BaseModel

from ..core import values
from ..core.aggregate import aggregate_key
from ..core.compensate import SUFFIX
from ..core.decide import effect_key
from ..core.global_keys import global_effect_key
from ..core.names import valid_job_id
from ..core.secrets import holds_secret, scrub_text
from ..core.sizes import STEP_MAX, name_refusal, too_large
from ..core.times import BadTime, are_seconds, duration_us
from ..effects.errors import BadStep
from ..effects.gate import EffectCall
from ..effects.json_form import json_form
from ..effects.marked import dumped
from .leasing import HeldLease, Lease, LeaseHandle, in_order
from .read_back import check_read_back

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Aggregate(NamedTuple):
    """An aggregate as it was read: `version` is 0 when it does not exist."""

    key: str
    version: int
    data: Mapping[str, Any]

    @property
    def exists(self) -> bool:
        """Whether any version was ever written."""
        return self.version > 0

    def __getitem__(self, field: Any) -> Any:
        return self.data[field]

    def get(self, field: str, default: Any = None) -> Any:
        """A field's value, `default` when it is not set."""
        return self.data.get(field, default)


class CacheAnswer(NamedTuple):
    """What a cache source held: a value with its version, or nothing."""

    hit: bool
    value: Any = None
    version: str | None = None
    age_ms: int | None = None


class Child(NamedTuple):
    """A job to enqueue with the step that asks for it. `delay` microseconds."""

    type: str
    payload: bytes
    key: str | None
    delay: int
    job_id: str


class Session(Protocol):
    """One attempt in one mode. Raises StepErrors; records every step."""

    job_id: str
    attempt: int
    trace_id: str
    mode: str
    key: str

    @property
    def secrets(self) -> list[str]:
        """What the job's payload marks secret, as texts."""
        ...

    def type_of(self, handler_or_type: Callable[..., Any] | str) -> str:
        """The job type's name."""
        ...

    def compensation(self, given: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """A compensation's name in the log. Raises ValueError where it has none, or cannot take the arguments."""
        ...

    async def load(self, step: str, key: str) -> Aggregate:
        """Reads an aggregate's newest version, wherever it is at home."""
        ...

    async def save(self, step: str, key: str, changes: Mapping[str, Any], expected: int) -> int:
        """Writes fields on an expected version; the new version."""
        ...

    def effect(self, call: EffectCall) -> Awaitable[Any]:
        """Performs an effect through the gate."""
        ...

    def decide(self, step: str, value: bytes, because: bytes | None) -> None:
        """Records a decision."""
        ...

    def cache(self, step: str, source: str, key: str) -> Awaitable[CacheAnswer]:
        """Reads a cache source."""
        ...

    def acquire(self, step: str, resource: str, ttl: float, wait: float) -> Awaitable[LeaseHandle]:
        """Acquires a lease."""
        ...

    def release(self, lease: LeaseHandle) -> None:
        """Gives it back."""
        ...

    def now_us(self, step: str) -> int:
        """The attempt's time, recorded."""
        ...

    def note(self, step: str, fields: bytes) -> None:
        """Records a note."""
        ...

    def enqueue(self, step: str, child: Child) -> None:
        """Enqueues a child job with this step."""
        ...

    @property
    def token(self) -> int | None:
        """The fencing token of the job's own resource."""
        ...

    @property
    def random(self) -> random.Random:
        """Seeded by the job and the attempt."""
        ...


class Context:
    """The handler's only way to the world; everything it does is recorded, so that a replay can answer for it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._occurrences: dict[str, int] = {}

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._session.job_id

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._session.attempt

    @property
    def trace_id(self) -> str:
        """The trace that this job belongs to."""
        return self._session.trace_id

    @property
    def mode(self) -> str:
        """`live`, `dry-run`, `fork` or `rerun`."""
        return self._session.mode

    @property
    def random(self) -> random.Random:
        """A generator seeded by the job and the attempt: a replay draws the same numbers."""
        return self._session.random

    def uuid(self) -> UUID:
        """A random UUID from `random`."""
        return UUID(int=self._session.random.getrandbits(128), version=4)

    def now(self) -> datetime:
        """The time in UTC, recorded."""
        return EPOCH + timedelta(microseconds=self._session.now_us(self._step("now")))

    async def load(self, type: str, id: str | int) -> Aggregate:  # noqa: A002 - the public names
        """Reads an aggregate; one that is at home on another partition is asked for there. Raises NoAnswer then."""
        key = _key(type, id)
        return await self._session.load(self._step(f"load {key}"), key)

    async def save(self, type: str, id: str | int, changes: Mapping[str, Any], *, expected: int) -> int:  # noqa: A002
        """Writes fields (`DELETE` removes one) if `expected` is the current version; returns the new version.

        Raises WriteRefused when somebody else has written since, BadStep when a value cannot be recorded.
        """
        key = _key(type, id)
        if isinstance(expected, bool) or not isinstance(expected, int) or expected < 0:
            raise BadStep(f"save {key}: expected must be the version that was read, got {expected!r}")
        step = self._step(f"save {key}")
        self._refuse_secret("a field", changes, step)
        return await self._session.save(step, key, changes, expected)

    async def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        global_key: str | None = None,
        idempotent: bool = False,
        on_doubt: Callable[..., Any] | None = None,
        compensate: Callable[..., Any] | str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Calls the outside world at most once under `key`, which must be the same on every attempt.

        `key` names the intent within the job's partition key. `global_key` names it for all jobs, on whatever
        partition: one of them makes the call, the others wait for it (up to half a minute, then they are retried) and
        get its answer. Its record is at home on the partition of `global_key`, so the call costs a round trip through
        the log more. Give one of the two; with both, `global_key` alone tells which call is meant.

        An outcome that stays unknown is looked up with `on_doubt` (its answer, or None when the call was surely not
        done), sent again when the other side dedupes (`idempotent=True`), or left to a person. `timeout` seconds.
        A parameter named `idempotency_key` or `fencing_token` of `function` is handed the value.

        `compensate` undoes the effect when the job has failed for good: a function of a module, or the name of one that
        is registered with `@app.compensation`. It is called with the effect's result and arguments as recorded, as an
        effect of its own, last success first.
        """
        step = self._step(name)
        if not name or "\0" in name or name.endswith(SUFFIX):
            raise BadStep(
                f"an effect's name must be a non-empty text without NUL, not ending in {SUFFIX}, got {name!r}"
            )
        full = self._effect_key(name, key, global_key, step)
        if timeout is not None and not are_seconds(timeout):
            raise BadStep(
                f"effect {name!r}: timeout must be seconds above 0, up to ten years, got {timeout!r}", step=step
            )
        try:
            undo = None if compensate is None else self._session.compensation(compensate, args, kwargs)
        except ValueError as error:
            raise BadStep(str(error), step=step) from error
        token = self._session.token
        call = EffectCall(name, step, function, args, kwargs, full, idempotent, on_doubt, timeout, token, undo)
        return await self._session.effect(call)

    def _effect_key(self, name: str, key: str | None, global_key: str | None, step: str) -> str:
        """The whole key. Raises BadStep where neither is given, or one is blank or holds a secret."""
        given = [one for one in (key, global_key) if one is not None]
        if not given or not all(isinstance(one, str) for one in given):
            raise BadStep(f"effect {name!r}: give key= or global_key=, a text that names this intent", step=step)
        for one in given:
            _writable(f"effect {name!r}: the key", one, step)
        self._refuse_secret("its key", given, step)
        try:
            own = None if key is None else effect_key(self._session.key, name, key)
            shared = None if global_key is None else global_effect_key(name, global_key)
        except ValueError as error:
            raise BadStep(str(error), step=step) from error
        return shared or own or ""

    def decide(self, name: str, value: T, **because: Any) -> T:
        """Records why the code takes a branch, and returns `value`."""
        step = self._step(name)
        self._session.decide(step, encode_step(step, value), encode_step(step, because) if because else None)
        return value

    async def cache(self, source: str, key: str) -> Any:
        """The value that a registered cache source holds, None on a miss; recorded with its version and age."""
        answer = await self._session.cache(self._step(f"cache {source}/{key}"), source, key)
        return answer.value if answer.hit else None

    def lease(self, *resources: str, ttl: float = 30, wait: float = 10) -> AbstractAsyncContextManager[Lease]:
        """Holds one resource or several, all or none, while the block runs. `ttl` and `wait` seconds.

        Several are taken one by one in the order of their keys' bytes, whatever order they are named in; `wait` bounds
        the whole. Raises LeaseUnavailable, holding nothing; BadStep, before any is asked for, where one is no resource.
        """
        wanted = in_order(resources)
        if not are_seconds(ttl) or not (are_seconds(wait) or (wait == 0 and wait is not False)):
            reason = "ttl must be seconds above 0, and wait 0 or more, up to ten years"
            raise BadStep(f"lease {', '.join(wanted)}: {reason}, got {ttl!r} and {wait!r}")
        return HeldLease(self._session, [(self._step(f"lease {name}"), name) for name in wanted], ttl, wait)

    def note(self, name: str, **fields: Any) -> None:
        """Leaves something in the trace."""
        step = self._step(name)
        self._session.note(step, encode_step(step, fields))

    async def enqueue(
        self,
        handler_or_type: Callable[..., Any] | str,
        payload: BaseModel | Mapping[str, Any],
        key: str | None = None,
        delay: float | str | timedelta = 0,
        job_id: str | None = None,
    ) -> str:
        """Enqueues a child job, committed with this step; returns its id. `delay` in seconds, or as in `"1h30m"`."""
        job_type = self._session.type_of(handler_or_type)
        step = self._step(f"enqueue {job_type}")
        self._refuse_secret("the child's key or id", [key, job_id], step)
        try:
            wait = duration_us(delay, "delay")
        except BadTime as error:
            raise BadStep(f"{step}: {error}", step=step) from error
        # The same on every attempt: what an earlier attempt enqueued is not enqueued again.
        child_id = job_id or f"{self._session.job_id}.{step.replace(' ', '-')}"
        if not valid_job_id(child_id):
            raise BadStep(f"{step}: job id {child_id!r} must be 1 to 200 printable characters; give job_id=", step=step)
        _writable(f"{step}: the key", key or "", step)
        try:
            data = encode_payload(payload)
        except values.ValueRefused as error:
            raise BadStep(f"{step}: the payload cannot be recorded: {error}", step=step) from error
        self._session.enqueue(step, Child(job_type, data, key, wait, child_id))
        return child_id

    def _refuse_secret(self, what: str, value: object, step: str) -> None:
        """Names and state are read by everybody, and a masked name would name something else. Raises BadStep."""
        secrets = self._session.secrets
        if secrets and holds_secret(value, secrets):
            raise BadStep(
                f"{step}: {what} holds what the payload's model marks secret; use a digest of it "
                "(hashlib.sha256(...).hexdigest()) or a reference",
                step=step,
            )

    def _step(self, name: str) -> str:
        """The step's name, `#2` and so on behind it for later occurrences. Raises BadStep when it cannot be written."""
        _writable("step name", name)
        if self._session.secrets:
            self._refuse_secret("its name", name, scrub_text(name, self._session.secrets))
        count = self._occurrences.get(name, 0) + 1
        self._occurrences[name] = count
        return name if count == 1 else f"{name}#{count}"


def encode_payload(payload: BaseModel | Mapping[str, Any]) -> bytes:
    """A payload in canonical form: plain JSON that its model reads back as it was. Raises values.ValueRefused."""
    if isinstance(payload, BaseModel):
        data = values.encode_plain(reveal(payload))
        check_read_back(payload, data)
        return data
    return values.encode_plain(dict(payload))


def reveal(model: BaseModel) -> Any:
    """A model's JSON form with its secrets in clear, for the payload itself and nothing else."""
    return _revealed(model, json_form(model))


def _revealed(value: Any, dumped: Any) -> Any:
    if hasattr(value, "get_secret_value"):
        secret = value.get_secret_value()
        return secret.decode() if isinstance(secret, bytes) else secret
    if isinstance(value, BaseModel) and isinstance(dumped, dict):
        fields = {name: getattr(value, name, None) for name in type(value).model_fields}
        return {name: _revealed(fields.get(name), item) for name, item in dumped.items()}
    if isinstance(value, list | tuple) and isinstance(dumped, list):
        return [_revealed(a, b) for a, b in zip(value, dumped, strict=True)]
    if isinstance(value, dict) and isinstance(dumped, dict) and len(value) == len(dumped):
        return {k: _revealed(v, dumped[k]) for (k, _), v in zip(dumped.items(), value.values(), strict=True)}
    return dumped


def _key(kind: str, identity: str | int) -> str:
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise BadStep(f"id of {kind!r} must be a text or a whole number, got {identity!r}")
    try:
        return aggregate_key(kind, str(identity))
    except ValueError as error:
        raise BadStep(str(error)) from error


def encode_step(step: str, value: Any) -> bytes:
    """What a step tells the trace, as bytes. Raises BadStep for what cannot be recorded or is too large."""
    try:
        data = values.encode(dumped(value) if isinstance(value, BaseModel) else value)
    except values.ValueRefused as error:
        raise BadStep(f"{step}: the value cannot be recorded: {error}", step=step) from error
    if len(data) > STEP_MAX:
        raise BadStep(f"{step}: {too_large('the value', len(data), STEP_MAX)}", step=step)
    return data


def _writable(what: str, name: str, step: str | None = None) -> None:
    refusal = name_refusal(what, name)
    if refusal is not None:
        raise BadStep(refusal, step=step)
