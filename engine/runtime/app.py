"""What an application writes: an `App` with decorated handlers."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import string
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter

from ..core.rate import Rate
from ..core.retry import FailureClass, Retry
from ..core.schedule import Missed
from ..core.sizes import name_refusal
from ..core.times import are_seconds
from ..effects.marked import is_marked
from .cron import BadSchedule, Cron, PeriodicJob, periodic_job
from .rules import BadRule, KeyRule, OnFailure, Rules

Handler = TypeVar("Handler", bound=Callable[..., Any])
CacheGet = Callable[[str], Any] | Callable[[str], Awaitable[Any]]


class AppError(Exception):
    """An application is declared wrongly, or cannot be loaded. Names the handler or module and what to change."""


class JobType(NamedTuple):
    """A registered handler and how its jobs are run. `timeout` seconds."""

    name: str
    function: Callable[..., Any]
    model: type[BaseModel]
    result: TypeAdapter[Any] | None
    resource: KeyRule
    key: KeyRule
    retry: Retry
    timeout: float | None
    max_lost: int
    concurrency: int | None
    is_async: bool
    secrets: tuple[str, ...]
    blocks_key: bool = False
    concurrency_key: KeyRule = None
    rate: Rate | None = None
    unique: KeyRule = None
    unique_for: float | None = None

    @property
    def homed(self) -> bool:
        """Whether a limit holds only if all jobs under one key are at its home: no other key may be given."""
        return self.concurrency_key is not None or self.rate is not None or self.unique is not None

    def resource_of(self, payload: BaseModel) -> str | None:
        """The job's resource. Raises ValueError naming the type and the rule."""
        return self._apply("resource", self.resource, payload)

    def key_of(self, payload: BaseModel) -> str | None:
        """The partition key that the job asks for, None: its resource, else its id."""
        return self._apply("key", self.key, payload)

    def unique_of(self, payload: BaseModel) -> str | None:
        """The job's unique key. Raises ValueError naming the type and the rule."""
        return self._apply("unique", self.unique, payload)

    def _apply(self, what: str, rule: KeyRule, payload: BaseModel) -> str | None:
        if rule is None:
            return None
        value = rule.format_map(_Fields(payload)) if isinstance(rule, str) else rule(payload)
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{what} of {self.name!r} gave {value!r}; it must be a non-empty text without NUL")
        refusal = name_refusal(f"{what} of {self.name!r}", value)
        if refusal is not None:
            raise ValueError(refusal)
        return value


class _Fields(dict[str, Any]):
    """Payload fields for a template: only plain scalars, so that a key never depends on how an object prints."""

    def __init__(self, payload: BaseModel) -> None:
        super().__init__()
        self._payload = payload

    def __missing__(self, name: str) -> Any:
        value = getattr(self._payload, name)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"field {name!r} is {type(value).__name__}; a key is made of text and whole numbers")
        if value == "":
            raise ValueError(f"field {name!r} is empty; a key's parts must not be blank")
        return value


class App:
    """A named set of job handlers with their rules.

    `name` is shown to operators. An app is found by `module:attribute` (`--app`).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.types: dict[str, JobType] = {}
        self.stubs: dict[str, Callable[..., Any]] = {}
        self.compensations: dict[str, Callable[..., Any]] = {}
        self.cache_sources: dict[str, CacheGet] = {}
        self._classes: dict[type[BaseException], FailureClass] = {}
        self._crons: list[Cron] = []

    def job(
        self,
        name: str | None = None,
        *,
        resource: KeyRule = None,
        key: KeyRule = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        max_lost: int = 3,
        concurrency: int | None = None,
        concurrency_key: KeyRule = None,
        rate: str | None = None,
        unique: KeyRule = None,
        unique_for: float | None = None,
        on_failure: OnFailure = "continue",
    ) -> Callable[[Handler], Handler]:
        """Registers a handler `(ctx, payload) -> result`, `async def` or plain `def`.

        `resource` names what the job works on: one job of a resource runs at a time. `key` is the partition key
        (default: the resource, else the job's id). `timeout` seconds bound an attempt. After `max_lost` lost workers
        the job is poison. `concurrency` bounds jobs of this type in one worker process; with `concurrency_key`, those
        under each such key in all workers (default 1), and that is the partition key then. `rate`
        (`"100/s"`, `"10/m"`) bounds the starts of attempts of this type in all workers; all its jobs are at home on one
        partition then. `unique`: while a job of the type with this key has not ended, another one is recorded as its
        duplicate; for `unique_for` seconds from its submission at most. With `on_failure="block_key"` a job that failed
        keeps later jobs of its resource waiting until it succeeds or is cancelled. Raises AppError.
        """

        rules = Rules(resource, key, concurrency, concurrency_key, rate, unique, unique_for, on_failure)

        def register(function: Handler) -> Handler:
            job_name = name or function.__name__
            if job_name in self.types:
                raise AppError(f"app {self.name!r} has two handlers named {job_name!r}; rename one")
            _check_attempts(job_name, timeout, max_lost)
            model, result = _signature(job_name, function)
            limit, home = _checked(job_name, rules, model)
            self.types[job_name] = JobType(
                job_name,
                function,
                model,
                result,
                resource,
                home,
                retry or Retry(),
                timeout,
                max_lost,
                concurrency,
                inspect.iscoroutinefunction(function),
                secret_paths(model),
                on_failure == "block_key",
                concurrency_key,
                limit,
                unique,
                unique_for,
            )
            return function

        return register

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        missed: Missed = "latest",
        name: str | None = None,
        payload: BaseModel | Mapping[str, Any] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Runs a job of this app periodically; stands beside `@app.job` on its handler, any number of times.

        `expression` has five fields, or six with seconds first, in the time zone `tz`. `missed` says what becomes of
        instants that nobody was there to plan: `latest` (one run for the newest), `all` (up to 1000), `none`. `name`
        (default: the job type's) makes the job ids, `cron:{name}:{instant in UTC}`: one job an instant, whatever
        restarts. `payload` is each job's. Raises AppError.
        """

        def register(function: Handler) -> Handler:
            self._crons.append(Cron(function, expression, tz, missed, name, payload))
            return function

        return register

    def schedules(self) -> dict[str, PeriodicJob]:
        """The app's periodic jobs by name. Raises AppError when one is declared wrongly."""
        found: dict[str, PeriodicJob] = {}
        for cron in self._crons:
            try:
                job = periodic_job(cron, self.types[self.type_of(cron.function)])
            except BadSchedule as error:
                raise AppError(f"app {self.name!r}: {error}") from error
            if job.definition.name in found:
                raise AppError(
                    f"app {self.name!r} has two schedules named {job.definition.name!r}; give one another name="
                )
            found[job.definition.name] = job
        return found

    def classify(self, exception: type[BaseException], failure_class: FailureClass) -> None:
        """Sets the failure class of an exception type and its subclasses; the most specific rule wins."""
        self._classes[exception] = FailureClass(failure_class)

    def class_of(self, error: BaseException) -> FailureClass | None:
        """The app's own class for an exception, None where it has no rule."""
        ruled = self.rule_of(error)
        return None if ruled is None else self._classes[ruled]

    def rule_of(self, error: BaseException) -> type[BaseException] | None:
        """The exception type of the app's rule for an exception, None where it has none."""
        return next((kind for kind in type(error).__mro__ if kind in self._classes), None)

    def stub(self, effect: str) -> Callable[[Handler], Handler]:
        """Registers a function that stands in for an effect in forks: `app.stub("charge")(function)`."""

        def register(function: Handler) -> Handler:
            self.stubs[effect] = function
            return function

        return register

    def compensation(self, name: str) -> Callable[[Handler], Handler]:
        """Registers a function for `ctx.effect(compensate=)` under a name that stays the same from release to release.

        It takes the effect's result, then the effect's arguments. Raises AppError.
        """
        if not name or ":" in name:
            raise AppError(f"a compensation's name must be a non-empty text without ':', got {name!r}")
        if name in self.compensations:
            raise AppError(f"app {self.name!r} has two compensations named {name!r}; rename one")

        def register(function: Handler) -> Handler:
            self.compensations[name] = function
            return function

        return register

    def cache_source(self, name: str, get: CacheGet) -> None:
        """Registers a cache for `ctx.cache(name, key)`: `get(key) -> (value, version) | None`."""
        self.cache_sources[name] = get

    def type_of(self, function_or_name: Callable[..., Any] | str) -> str:
        """The job type's name of a handler. Raises AppError when it is none of this app's."""
        if isinstance(function_or_name, str):
            return function_or_name
        for job_type in self.types.values():
            if job_type.function is function_or_name:
                return job_type.name
        raise AppError(f"{function_or_name!r} is not a handler of app {self.name!r}")


def _signature(name: str, function: Callable[..., Any]) -> tuple[type[BaseModel], TypeAdapter[Any] | None]:
    parameters = list(inspect.signature(function).parameters.values())
    hints = typing.get_type_hints(function)
    if len(parameters) != 2:
        raise AppError(f"handler {name!r} must take (ctx, payload), it takes {len(parameters)} parameters")
    model = hints.get(parameters[1].name)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise AppError(f"handler {name!r}: annotate {parameters[1].name!r} with its pydantic model, got {model!r}")
    returns = hints.get("return")
    return model, TypeAdapter(returns) if returns not in (None, type(None), Any) else None


def _check_attempts(name: str, timeout: float | None, max_lost: int) -> None:
    if timeout is not None and not are_seconds(timeout):
        raise AppError(f"timeout of {name!r} must be seconds above 0, up to ten years, got {timeout!r}")
    if max_lost < 1:
        raise AppError(f"max_lost of {name!r} must be 1 or more, got {max_lost!r}")


def _checked(name: str, rules: Rules, model: type[BaseModel]) -> tuple[Rate | None, KeyRule]:
    """The type's rate, and the rule of its partition key."""
    try:
        limit, home = rules.check(name), rules.home(name)
    except BadRule as error:
        raise AppError(str(error)) from error
    for what, rule in rules.keys.items():
        _check_template(name, what, rule, model)
    return limit, home


def _check_template(name: str, what: str, rule: KeyRule, model: type[BaseModel]) -> None:
    if not isinstance(rule, str):
        return
    for _, field, spec, conversion in string.Formatter().parse(rule):
        if field is None:
            continue
        if spec or conversion or field not in model.model_fields:
            raise AppError(f"{what} {rule!r} of {name!r}: {{{field}}} is not a plain field of {model.__name__}")


def secret_paths(model: type[BaseModel], prefix: str = "", seen: frozenset[type] = frozenset()) -> tuple[str, ...]:
    """Paths (`card.number`) of a model's fields marked secret: SecretStr, SecretBytes, or `json_schema_extra`
    with `secret: true`.
    """
    paths: list[str] = []
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        kinds = list(annotation_parts(field.annotation))
        if is_marked(field) or any(k in (SecretStr, SecretBytes) for k in kinds):
            paths.append(path)
            continue
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
                paths.extend(secret_paths(kind, f"{path}.", seen | {model}))
    return tuple(dict.fromkeys(paths))


def annotation_parts(annotation: Any) -> typing.Iterator[Any]:
    """The plain types that an annotation is made of: those of `list[Card | None]` are Card and None."""
    if typing.get_origin(annotation) is None:
        yield annotation
        return
    for part in typing.get_args(annotation):
        yield from annotation_parts(part)


class LoadedApp(NamedTuple):
    """An app with the place it came from and a short digest of its module's source."""

    app: App
    place: str
    code_version: str


def load_app(place: str) -> LoadedApp:
    """Imports `module:attribute`, the current folder included. Raises AppError saying what was not found."""
    module_name, _, attribute = place.partition(":")
    if not module_name or not attribute:
        raise AppError(f"app {place!r} must be MODULE:ATTRIBUTE, for example shop.jobs:app")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # A missing module, a syntax error, whatever the module itself raises.
        reason = f"{type(error).__name__}: {error}"
        raise AppError(f"app {place!r}: cannot import {module_name!r}: {reason}") from error
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        found = "nothing" if app is None else type(app).__name__
        raise AppError(f"app {place!r}: {module_name} has {found} named {attribute!r}, not a rewindq.App")
    app.schedules()
    return LoadedApp(app, place, code_version(module))


def code_version(module: types.ModuleType) -> str:
    """8 hex digits of the module's source, so that a trace names the code that ran."""
    source = Path(module.__file__).read_bytes() if module.__file__ else module.__name__.encode()
    return hashlib.sha256(source).hexdigest()[:8]
