"""A schema registry for the codec, over Confluent's client. It comes with the extra `rewindq[registry]`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from .avro import UnknownSchema

#: Under the topic-name strategy of other tools a topic's subject is `{topic}-value`; all topics share one schema here.
SUBJECT = "rewindq.EventRecord-value"
_TIMEOUT = 10.0
_RETRIES = 2
#: The second is what the client's own `mock://` says. A bare 404 is no answer: the address may be another server's.
_NO_SUCH_SCHEMA = (40403, 40400)
_INCOMPATIBLE = 409
T = TypeVar("T")


class RegistryUnavailable(Exception):
    """The registry did not answer, or its client is not installed. Names the address and the next step."""


class RegistryRefused(Exception):
    """The registry answered and refused the schema. Says why, and what to do."""


class SchemaRegistry:
    """Implements the codec's `Registry`. Ids and schemas never change, so each is asked for once."""

    def __init__(self, client: Any, subject: str, shown: str) -> None:
        self._client = client
        self._subject = subject
        self._shown = shown
        self._schemas: dict[int, dict[str, Any]] = {}

    def register(self, schema: dict[str, Any]) -> int:
        """The id of the complete schema, registering it when new. Raises RegistryUnavailable, RegistryRefused."""
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        try:
            found = self._ask(lambda: self._client.register_schema(self._subject, Schema(json.dumps(schema), "AVRO")))
        except SchemaRegistryError as error:
            hint = (
                f"the subject's compatibility rule forbids it; see {self._shown}/config/{self._subject}"
                if error.http_status_code == _INCOMPATIBLE
                else "check the address and the rights of its user"
            )
            raise RegistryRefused(
                f"schema registry {self._shown} refuses subject {self._subject}: {error.error_message}; {hint}"
            ) from error
        return int(found)

    def schema(self, schema_id: int) -> dict[str, Any]:
        """The schema of an id. Raises UnknownSchema, RegistryUnavailable, RegistryRefused."""
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._fetch(schema_id)
        return self._schemas[schema_id]

    def _fetch(self, schema_id: int) -> dict[str, Any]:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            found = self._ask(lambda: self._client.get_schema(schema_id))
        except SchemaRegistryError as error:
            if error.error_code in _NO_SUCH_SCHEMA:
                raise UnknownSchema(f"schema registry {self._shown} has no schema {schema_id}") from error
            raise RegistryRefused(
                f"schema registry {self._shown} refuses schema {schema_id}: {error.error_message}; "
                "check the address and the rights of its user"
            ) from error
        if found.schema_type != "AVRO" or found.references:
            raise UnknownSchema(f"schema {schema_id} of {self._shown} is not one self-contained Avro schema")
        parsed = json.loads(found.schema_str)
        if not isinstance(parsed, dict):
            raise UnknownSchema(f"schema {schema_id} of {self._shown} is not a record's")
        return parsed

    def _ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises the client's error for a refusal, RegistryUnavailable for everything else."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code >= 500 or error.http_status_code == 429:
                raise self._unavailable(error) from error
            raise
        except Exception as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"schema registry {self._shown} does not answer ({type(error).__name__}: {error}); start it, or check "
            "schema_registry_url (REWINDQ_SCHEMA_REGISTRY_URL); without that setting no registry is needed"
        )


def open_registry(url: str, subject: str = SUBJECT) -> SchemaRegistry:
    """A registry at `http(s)://[user:password@]host:port`, or `mock://name` within this process for tests.

    Nothing is asked of it yet. Raises RegistryUnavailable when the client's libraries are not installed.
    """
    try:
        # The HTTP library of the client announces its own plans on import; that is nothing for our users.
        with warnings.catch_warnings(record=True):
            from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise RegistryUnavailable(
            f"schema registry {_shown(url)} needs libraries that are not installed ({error.name} is missing): "
            "pip install 'rewindq[registry]'"
        ) from error
    client = SchemaRegistryClient.new_client(
        {"url": url, "timeout": _TIMEOUT, "max.retries": _RETRIES, "retries.wait.ms": 200}
    )
    return SchemaRegistry(client, subject, _shown(url))


def _shown(url: str) -> str:
    """The address without a password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
