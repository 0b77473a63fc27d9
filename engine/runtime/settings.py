"""Settings: what was given, then the environment (`REWINDQ_…`), then `rewindq.toml`, then defaults.

The file is the one in the current folder; parent folders are not searched, so that no job runs against a log
that nobody sees. An empty environment variable counts as not set.
"""

from __future__ import annotations

import os
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ..core.names import Topics
from ..core.times import duration_us

FILE = "rewindq.toml"
EMBEDDED = "sqlite:///"
_ENVIRONMENT = "REWINDQ_"
#: Addresses may hold passwords, so messages do not repeat them.
_ADDRESSES = frozenset({"log", "schema_registry_url"})


class SettingsError(Exception):
    """A setting is wrong; names where it came from, the setting and the reason."""


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("Input should be a whole number")
    return value


def _namespace(value: object) -> object:
    if isinstance(value, str):
        Topics(value)
    return value


def _seconds(value: object) -> object:
    return duration_us(value, "the duration") / 1e6 if isinstance(value, str | int | float | timedelta) else value


_Whole = Annotated[int, BeforeValidator(_no_bool)]
_Seconds = Annotated[float, BeforeValidator(_seconds)]


class Settings(BaseSettings):
    """Where the log, the state and the blobs are, and how new topics are made. Immutable.

    `app` is MODULE:ATTRIBUTE. `partitions` counts for topics that do not exist yet. Payloads, results and
    answers over `body_limit_bytes` go to the blob store. Jobs of a type that no handler is there for wait
    `unknown_type_wait` seconds for a worker that has one. What is known under an effect's key may be dropped
    `keep_keys` seconds after the end of its job (a duration such as `7d`; None: it is kept for ever).
    """

    model_config = SettingsConfigDict(
        env_prefix=_ENVIRONMENT, env_ignore_empty=True, extra="forbid", frozen=True, validate_default=True
    )

    log: str = Field("sqlite:///./.rewindq/log.db", min_length=1)
    namespace: Annotated[str, BeforeValidator(_namespace)] = "rewindq"
    state_dir: Path = Path(".rewindq/state")
    blobs: Path | None = None
    app: str | None = None
    partitions: _Whole = Field(8, ge=1, le=1024)
    schema_registry_url: str | None = Field(None, pattern=r"^(https?|mock)://.")
    body_limit_bytes: _Whole = Field(16 * 1024, ge=256, le=512 * 1024)
    unknown_type_wait: float = Field(600.0, ge=0, le=366 * 86_400)
    keep_keys: _Seconds | None = Field(None, gt=0)

    @property
    def blobs_folder(self) -> Path | None:
        """The blob folder: as set, else beside the embedded log; None on other logs."""
        if self.blobs is not None:
            return self.blobs
        return None if self.log_file is None else self.log_file.parent / "blobs"

    @property
    def log_file(self) -> Path | None:
        """The embedded log's file; None on other logs."""
        if not self.log.startswith(EMBEDDED):
            return None
        return Path(unquote(self.log.removeprefix(EMBEDDED).partition("?")[0]))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What was given, then the environment. `load_settings` adds the file."""
        return init_settings, env_settings


def load_settings(**given: Any) -> Settings:
    """The settings, `None` counting as not given. Raises SettingsError."""
    explicit = {name: value for name, value in given.items() if value is not None}
    variables = {name.upper() for name, value in os.environ.items() if value}
    from_file = {
        name: value
        for name, value in _read_file(Path(FILE)).items()
        if name not in explicit and _variable(name) not in variables
    }
    try:
        return Settings(**explicit, **from_file)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            reason = f"no such setting; there are {', '.join(Settings.model_fields)}"
        else:
            reason = problem["msg"].removeprefix("Value error, ")
            reason += "" if name in _ADDRESSES else f", got {problem['input']!r}"
        raise SettingsError(f"{_origin(name, explicit, from_file)}: {reason}") from error


def _origin(name: str, explicit: dict[str, Any], from_file: dict[str, Any]) -> str:
    if name in explicit:
        return f"setting {name}"
    return f"{FILE}, {name}" if name in from_file else _variable(name)


def _variable(name: str) -> str:
    return _ENVIRONMENT + name.upper()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path.resolve()} cannot be read: {error}") from error
