"""Starting a local broker where a port is taken, a folder refuses, or somebody presses Ctrl-C. No Java is needed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata
from tests.support.cli import CHECKOUT
from tests.support.kafka import until
from tests.support.kafka_mock import MockCluster

from rewindq.tools.kafka_local import LocalKafkaError, await_brokers, cluster, start, stop
from rewindq.tools.kafka_local.processes import Process, alive

#: Says that it is Java, formats nothing, and as a broker waits without ever answering.
JAVA = """#!/bin/sh
case "$*" in
*-version*) echo 'openjdk version "17.0.15"' >&2 ;;
*kafka.Kafka*) exec sleep 600 ;;
esac
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for clusters, on a Java that only looks like one."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(JAVA)
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = cluster.jars.cache_dir() / "kafka_2.13.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    folder = tmp_path / "cluster"
    yield folder
    stop(folder)


def processes(folder: Path) -> list[Process]:
    """The brokers that the folder's state names."""
    path = folder / "cluster.json"
    return [Process(*one) for one in json.loads(path.read_text())["processes"]] if path.exists() else []


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens, and the one before it is free.

    From below the range of ports that programs are given when they ask for any: there the neighbour may go at any time.
    """
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port - 1)).close()
            with socket.create_server(("127.0.0.1", port)):
                yield port
                return


@pytest.fixture
def mock_bootstrap() -> Iterator[str]:
    """A cluster that is not ours."""
    with contextlib.closing(MockCluster()) as mock:
        yield mock.bootstrap


def test_a_port_that_is_taken_is_refused_before_anything_starts(java: Path, taken: int) -> None:
    with pytest.raises(LocalKafkaError, match=f"port {taken} of broker 1 is in use by another program"):
        start(port=taken, dir=java)
    assert processes(java) == []
    assert not (java / "cluster.json").exists(), "the next start without --port must not come back to it"


def test_a_later_brokers_port_counts_too(java: Path, taken: int) -> None:
    with pytest.raises(LocalKafkaError, match=f"port {taken} of broker"):
        start(brokers=3, port=taken - 1, dir=java)


def test_what_answers_must_be_the_cluster_that_was_started(mock_bootstrap: str) -> None:
    await_brokers(mock_bootstrap, 1)
    with pytest.raises(
        LocalKafkaError, match=r"is answered by another cluster \(mock\w+\) than the one started \(ours\)"
    ):
        await_brokers(mock_bootstrap, 1, cluster_id="ours")


def test_a_broker_that_ended_is_not_taken_for_one_that_answers(mock_bootstrap: str) -> None:
    def ended() -> None:
        raise LocalKafkaError("broker 1 ended while starting")

    with pytest.raises(LocalKafkaError, match="ended while starting"):
        await_brokers(mock_bootstrap, 1, ended)


def test_ctrl_c_leaves_no_broker(java: Path) -> None:
    command = [sys.executable, "-m", "rewindq.tools.cli", "kafka", "start", "--dir", str(java)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    starting = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begun() -> list[Process]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            starting.wait(0.02)
        return processes(java)

    try:
        until(begun, 60)
        (broker,) = processes(java)
        assert alive(broker)
        starting.send_signal(signal.SIGINT)
        out, err = starting.communicate(timeout=60)
    finally:
        starting.kill()
    assert (starting.returncode, out, err) == (130, "", "interrupted\n")
    assert not alive(broker)


def test_ctrl_c_that_the_client_swallows_leaves_no_broker(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt that meets a callback of the Kafka client is lost in there."""

    class Swallowing(AdminClient):
        def list_topics(self, *_: object, **__: object) -> ClusterMetadata:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(cluster, "AdminClient", Swallowing)
    with pytest.raises(KeyboardInterrupt):
        start(dir=java)
    assert not any(map(alive, processes(java)))


@pytest.mark.parametrize("port", [-1, 65536, 65534])
def test_a_port_that_is_none_is_refused(java: Path, port: int) -> None:
    with pytest.raises(LocalKafkaError, match="it must be from 1 to 65533"):
        start(brokers=3, port=port, dir=java)


def test_port_0_takes_a_free_one(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "await_brokers", lambda *_: None)
    started = start(port=0, dir=java)
    assert int(started.bootstrap.rpartition(":")[2]) > 0
    assert start(port=0, dir=java) == started
    assert stop(java) == started


def test_a_controllers_port_that_is_taken_meanwhile_moves(
    java: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "await_brokers", lambda *_: None)
    first = start(dir=java)
    stop(java)
    path = java / "cluster.json"
    state = json.loads(path.read_text())
    state["nodes"][0]["controller_port"] = taken
    path.write_text(json.dumps(state))
    assert start(dir=java).bootstrap == first.bootstrap
    assert json.loads(path.read_text())["nodes"][0]["controller_port"] != taken


def test_a_folder_that_cannot_be_made_is_named(java: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalKafkaError, match=r"file/kafka cannot be written \(Not a directory\): name another --dir"):
        start(dir=tmp_path / "file" / "kafka")
