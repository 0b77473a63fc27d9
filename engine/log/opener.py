"""Opens a log by its URL."""

from __future__ import annotations

from ..ports.log import Log, LogUnavailable

_FORMS = "sqlite:///path/to/log.db, kafka://host:port[,host:port] or memory:///name"


def open_log(url: str) -> Log:
    """The log at `sqlite:///path`, `kafka://host:port[,host:port]` or `memory:///name` (of this process).

    Raises LogUnavailable for an address of another form, and what opening that log raises.
    """
    scheme, separator, _ = url.partition("://")
    # Only what is used gets imported: the embedded log must not need Kafka's client library, nor load it.
    if separator and scheme == "sqlite":
        from .sqlite import open_sqlite

        return open_sqlite(url)
    if separator and scheme == "kafka":
        from .kafka import open_kafka

        return open_kafka(url)
    if separator and scheme == "memory":
        from .memory import open_memory

        return open_memory(url)
    raise LogUnavailable(f"log address {url!r} is of no known form: write {_FORMS}")
