"""One real Kafka for a whole test run, shared by all its workers.

`KAFKA_BOOTSTRAP` names a cluster to use. Otherwise the first test that needs one starts it, in Docker where
an engine answers, else on this machine's Java; the process that runs the session ends it. Where neither is
possible the test is skipped with the reason, or fails when `REWINDQ_REQUIRE_KAFKA=1`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rewindq.tools.kafka_local import LocalKafkaError, await_brokers, jars, start, stop
from rewindq.tools.kafka_local.processes import Process, alive, start_ticks
from rewindq.tools.kafka_local.settings import HOST, Node, server_properties

# Set by the session's main process and inherited by its workers.
DIR_VARIABLE = "REWINDQ_TEST_KAFKA_DIR"
_PREFIX = "rewindq-kafka-"
KAFKA_IMAGE = "apache/kafka:4.2.1"

_containers: list[Any] = []


def prepare() -> None:
    """Called once by each process of a test run; its main process makes the folder that all share."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        # Of a run that was killed, and so could not end its broker.
        pid, ticks = (int(word) for word in left.name.removeprefix(_PREFIX).split("-")[:2])
        if not alive(Process(pid, ticks)):
            _end(left)
    os.environ[DIR_VARIABLE] = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{start_ticks(os.getpid())}-")


def end() -> None:
    """Called at the end of the run by each process; the main one ends the broker, whoever started it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    _end(Path(os.environ.pop(DIR_VARIABLE)))


def _end(folder: Path) -> None:
    stop(folder / "cluster")
    container = folder / "container"
    if container.exists():
        subprocess.run(["docker", "rm", "-f", container.read_text()], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def bootstrap() -> str:
    """`host:port,...` of a real cluster, started when nobody has. Skips or fails the test without one."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        return given
    folder = Path(os.environ[DIR_VARIABLE])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = folder / "bootstrap"
        if not known.exists():
            known.write_text(_start(folder))
        answer = known.read_text()
    if not answer.startswith("!"):
        return answer
    if os.environ.get("REWINDQ_REQUIRE_KAFKA") == "1":
        pytest.fail(f"REWINDQ_REQUIRE_KAFKA=1 and there is no Kafka: {answer[1:]}")
    pytest.skip(f"no Kafka: {answer[1:]}")


def require_local() -> None:
    """Skips the test, which needs a broker of its own, where this machine has no Java or jars to run one.

    For tests that use the shared cluster too: where there is none at all they have been skipped or failed already.
    """
    try:
        jars.java()
        jars.resolve()
    except LocalKafkaError as error:
        pytest.skip(f"a broker that a test may freeze or stop has to run on this machine's Java: {error}")


def _start(folder: Path) -> str:
    """The cluster's address, or `!` and the reason why there is none."""
    if _docker_answers():
        return _start_container(folder)
    try:
        return start(dir=folder / "cluster").bootstrap
    except LocalKafkaError as error:
        return f"!{error} (KAFKA_BOOTSTRAP names a running one, or a Docker engine would do)"


def _docker_answers() -> bool:
    program = shutil.which("docker")
    if program is None:
        return False
    try:
        return subprocess.run([program, "version"], capture_output=True, timeout=5, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _start_container(folder: Path) -> str:
    # The reaper of testcontainers would end the broker with the worker that happened to start it.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    node = Node(1, port, 9093, Path("/tmp/kraft"))
    values = dict(line.split("=", 1) for line in server_properties(node, [node]).splitlines())
    values["listeners"] = f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://{HOST}:9093"
    # The broker advertises the address it is reached at, so the port is the same inside and outside.
    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(port, port)
    for name, value in values.items():
        container = container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    container.start()
    _containers.append(container)  # kept: its finaliser would end it
    (folder / "container").write_text(container.get_wrapped_container().id)
    address = f"{HOST}:{port}"
    await_brokers(address, 1)
    return address
