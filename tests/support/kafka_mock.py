"""librdkafka's own mock cluster: a Kafka inside of the test's process, without Java or Docker.

It answers producing, fetching, the members of groups and their transactions. `LACKS` says what falls short.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from rewindq.engine.log.kafka import log, member
from rewindq.engine.log.kafka.settings import KafkaSettings, reader_config

_PRODUCER = 0
_CONF_OK = 0

#: What the mock cannot do, for the tests that need it; a real broker does all of it. Nor does it hide the records of
#: aborted transactions: tests/kafka has those.
LACKS = {
    "topic administration": "librdkafka's mock cluster neither makes nor deletes topics",
    "group administration": "librdkafka's mock cluster neither lists groups nor keeps a transaction's offsets",
    "offsets by time": "librdkafka's mock cluster does not search by timestamp",
}

#: The mock gives the members of a group this long, less one second, to hear of a rebalance, and takes all of it.
SESSION_TIMEOUT_MS = 2500


def tolerate_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no checksums compared: the mock writes transaction markers without one."""

    def config(settings: KafkaSettings, client_id: str) -> dict[str, Any]:
        return {**reader_config(settings, client_id), "check.crcs": False}

    for module in (log, member):
        monkeypatch.setattr(module, "reader_config", config)


class MockCluster:
    """A running mock cluster.

    Topics are made through the library: those that appear at a first use have four partitions, whatever was meant.
    """

    def __init__(self) -> None:
        self._library = _library()
        self._handle = ctypes.c_void_p(self._new())
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_handle_mock_cluster(self._handle))
        # A lone first member would otherwise wait 3 s for others.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def _new(self) -> int:
        library, reason = self._library, ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        for name, value in (("test.mock.num.brokers", "1"), ("log_level", "0")):
            if library.rd_kafka_conf_set(conf, name.encode(), value.encode(), reason, len(reason)) != _CONF_OK:
                raise RuntimeError(f"no mock cluster: {reason.value.decode()}")
        handle: int | None = library.rd_kafka_new(_PRODUCER, conf, reason, len(reason))
        if handle is None:
            raise RuntimeError(f"no mock cluster: {reason.value.decode()}")
        return handle

    def create_topic(self, name: str, partitions: int) -> None:
        error = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        assert error == 0, f"topic {name}: error {error}"

    def close(self) -> None:
        self._library.rd_kafka_destroy(self._handle)


def _library() -> ctypes.CDLL:
    """The client library that confluent-kafka has loaded: its mock's functions are not bound to Python."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in maps if "/librdkafka" in line}
    assert len(paths) == 1, f"confluent-kafka has loaded no single librdkafka: {paths}"
    library = ctypes.CDLL(paths.pop())
    void, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_conf_new", void, []),
        ("rd_kafka_conf_set", ctypes.c_int, [void, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", void, [ctypes.c_int, void, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [void]),
        ("rd_kafka_handle_mock_cluster", void, [void]),
        ("rd_kafka_mock_cluster_bootstraps", text, [void]),
        ("rd_kafka_mock_topic_create", ctypes.c_int, [void, text, ctypes.c_int, ctypes.c_int]),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [void, ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
