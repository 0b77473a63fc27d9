"""Every Kafka client setting that Rewindq chooses, each with its reason, and the `kafka://` URL.

`kafka://host:port[,host:port][?option=value&...]` with these options:

- `instance`: static membership, a restarted worker of that name keeps its partitions;
- `session_timeout_ms`, `transaction_timeout_ms`, `request_timeout_ms`;
- `config`: a file of `name=value` lines with librdkafka client properties;
- any librdkafka property by its dotted name.

Secrets belong into the file, never into the URL: a URL is printed and logged.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from rewindq.engine.ports.log import LogUnavailable

#: Topics are made with this limit and producers use it: a body limit is the caller's business, and one large
#: body must not need another topic setting. Bytes.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024

_OPTIONS = ("instance", "session_timeout_ms", "transaction_timeout_ms", "request_timeout_ms", "config")
_SECRET_WORDS = ("password", "secret", "ssl.key", "jaas")

# librdkafka's own log lines go here; connection trouble is thus in the worker's log, not on its stdout.
_logger = logging.getLogger("rewindq.log.kafka")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether it needs telling: what ends a transaction is raised by its call, and a producer's first id is retried."""
    text = record.getMessage()
    return not (text.startswith("TXNERR ") or (text.startswith("GETPID ") and text.endswith(": retrying")))


_logger.addFilter(_is_news)


class FatalNote:
    """A client's logger that keeps why the client is over: of a consumer's end its calls and callbacks tell nothing."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def log(self, level: int, message: str, *values: object) -> None:
        """Called by the client library."""
        text = message % values
        if text.startswith("FATAL "):
            self.reason = text.rpartition("Fatal error: ")[2]
        _logger.log(level, "%s", text)


class KafkaSettings(NamedTuple):
    """A parsed `kafka://` URL. Time-outs are milliseconds; `properties` go to every client as they are."""

    bootstrap: str
    properties: dict[str, str]
    instance: str | None = None
    # How long a frozen or dead worker keeps its partitions: short enough that jobs go on, long enough for a
    # pause.
    session_timeout_ms: int = 10_000
    # An open transaction of a dead worker hides everything behind it until the broker aborts it.
    transaction_timeout_ms: int = 10_000
    request_timeout_ms: int = 10_000

    @property
    def request_timeout(self) -> float:
        """How long one request may take, in seconds."""
        return self.request_timeout_ms / 1000

    @property
    def transaction_timeout(self) -> float:
        """How long one transaction may take, in seconds."""
        return self.transaction_timeout_ms / 1000

    def unavailable(self, what: str, reason: object) -> LogUnavailable:
        """The error for a request that the cluster did not answer."""
        return LogUnavailable(
            f"{what}: Kafka at {self.bootstrap} does not answer ({reason}); check that its brokers run "
            "and that their advertised listeners can be reached from here"
        )


def parse(url: str) -> KafkaSettings:
    """Parses a `kafka://` URL. Raises LogUnavailable that names the part which cannot be used."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise LogUnavailable(f"{url!r} is no Kafka address: {error}") from error
    hosts = parts.netloc.split(",")
    if parts.scheme != "kafka" or not all(_is_address(host) for host in hosts) or parts.path not in ("", "/"):
        raise LogUnavailable(f"{url!r} is no Kafka address: expected kafka://host:port[,host:port][?option=value]")
    given: dict[str, str] = {}
    properties: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OPTIONS:
            given[name] = value
        elif "." not in name:
            raise LogUnavailable(f"unknown option {name!r} in a Kafka address: known are {', '.join(_OPTIONS)}")
        elif any(word in name for word in _SECRET_WORDS):
            raise LogUnavailable(f"{name} is a secret and a URL is printed: put it into a file named by config=")
        else:
            properties[name] = value
    if "config" in given:
        properties = {**_read_properties(Path(given["config"])), **properties}
    numbers = {name: _milliseconds(name, value) for name, value in given.items() if name.endswith("_ms")}
    return KafkaSettings(parts.netloc, properties, given.get("instance") or None, **numbers)


def with_instance(url: str, instance: str) -> str:
    """The address with this `instance`; another one in it is replaced. Raises LogUnavailable."""
    parse(url)
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "instance"]
    return urlunsplit(parts._replace(query=urlencode([*options, ("instance", instance)])))


def _is_address(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return bool(name and colon and port.isdigit() and 0 < int(port) < 65536 and "@" not in name)


def _milliseconds(name: str, value: str) -> int:
    if not value.isdigit() or int(value) == 0:
        raise LogUnavailable(f"{name}={value!r} in a Kafka address: expected a whole number of milliseconds above 0")
    return int(value)


def _read_properties(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise LogUnavailable(f"config={path}: cannot be read ({error.strerror}); name a readable file") from error
    properties = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if name.startswith("#") or not name:
            continue
        if not equals:
            raise LogUnavailable(f"{path} line {number}: expected name=value")
        properties[name.strip()] = value.strip()
    return properties


def _common(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": client_id,
        "socket.keepalive.enable": True,
        # A transaction is a chain of small requests: waiting to fill a packet would add up to 40 ms to each.
        "socket.nagle.disable": True,
        # A restarted broker is used again soon; the default backs off up to 10 s.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        # Errors of connections are retried by the client and logged; those of calls are raised where they
        # occur.
        "error_cb": _ignored,
        **settings.properties,
    }


def _ignored(_error: object) -> None:
    return


def admin_config(settings: KafkaSettings) -> dict[str, Any]:
    """Of the admin client, whose failures are raised by its calls: it logs nothing itself."""
    return {**_common(settings, "rewindq-admin"), "log_level": 0}


def reader_config(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """Of a consumer that is told its partitions and offsets."""
    return {
        **_common(settings, client_id),
        "logger": _logger,
        # Needed by the client library; this consumer neither joins the group nor commits to it.
        "group.id": "rewindq-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Nothing is visible before it is committed.
        "isolation.level": "read_committed",
        # An offset that is not there means lost records or a wrong store: never silently another offset.
        "auto.offset.reset": "error",
        # Tells where a partition's readable end is, past transaction markers.
        "enable.partition.eof": True,
        "check.crcs": True,
        # The broker answers as soon as there is one byte, so this is no delay for new records; it bounds how
        # long a partition added to a waiting fetch stays unread.
        "fetch.wait.max.ms": 50,
        # The default pauses fetching for a second when the local queue is full, which stalls a fast reader.
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 50,
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 65_536,
    }


def group_config(settings: KafkaSettings, group: str, client_id: str) -> dict[str, Any]:
    """Of the consumer that is the group's member. It fetches nothing: records come through a reader."""
    config = {
        **reader_config(settings, client_id),
        "group.id": group,
        # Members keep what they have while others join: a rebalance stops only what really moves.
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": settings.session_timeout_ms,
        # Members hear of a rebalance in the answer to a heartbeat: the default of 3 s would be its duration.
        "heartbeat.interval.ms": min(500, settings.session_timeout_ms // 3),
        # A worker that has not polled for so long is stuck; its partitions pass on.
        "max.poll.interval.ms": max(60_000, settings.session_timeout_ms),
    }
    if settings.instance is not None:
        config["group.instance.id"] = settings.instance
    return config


def _producing(settings: KafkaSettings, client_id: str, timeout_ms: int) -> dict[str, Any]:
    return {
        **_common(settings, client_id),
        "logger": _logger,
        # Retries neither duplicate nor reorder, and an accepted record is on all in-sync replicas.
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        # A batch gathers what is produced within this time; a flush (every commit) does not wait for it.
        "linger.ms": 1,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "message.timeout.ms": timeout_ms,
        "queue.buffering.max.messages": 200_000,
    }


def producer_config(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """Of a producer outside of groups."""
    return _producing(settings, client_id, settings.request_timeout_ms)


def transaction_config(settings: KafkaSettings, client_id: str, transactional_id: str) -> dict[str, Any]:
    """Of a member's transactional producer."""
    return {
        **_producing(settings, client_id, settings.transaction_timeout_ms),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        # The coordinator answers "concurrent transactions" while the last commit's markers are being written,
        # and a retry waits this long: with the default of 100 ms, back-to-back transactions take over 100 ms
        # each.
        "retry.backoff.ms": 2,
    }
