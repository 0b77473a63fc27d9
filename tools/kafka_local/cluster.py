"""Starts and stops a local cluster of one or three brokers in a folder.

The folder keeps `cluster.json` (cluster id, ports, pids) and a folder for each broker with its data and
output. A stopped cluster started again in the same folder is the same cluster: same id, same records.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..interrupts import noted_interrupts
from . import jars
from .errors import LocalKafkaError
from .processes import Process, alive, end, spawn, wait_ended
from .settings import HOST, Node, log4j_properties, server_properties

START_TIMEOUT = 60.0
# A broker that loses its quorum partners while it stops waits for them; killing it then loses nothing.
STOP_GRACE = 10.0
PORT_MAX = 65535
_HEAP = ["-Xmx512m", "-XX:+UseSerialGC"]


class LocalKafka(NamedTuple):
    """A running local cluster: `host:port,...` to connect to, the brokers' pids, its folder."""

    bootstrap: str
    pids: tuple[int, ...]
    dir: Path


class _State(NamedTuple):
    cluster_id: str
    nodes: list[Node]
    processes: list[Process]

    def running(self) -> bool:
        return bool(self.processes) and all(alive(process) for process in self.processes)

    def handle(self, folder: Path) -> LocalKafka:
        bootstrap = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return LocalKafka(bootstrap, tuple(process.pid for process in self.processes), folder)


def start(brokers: int = 1, port: int | None = None, dir: Path | str = "./.rewindq/kafka") -> LocalKafka:  # noqa: A002
    """Starts a cluster of 1 or 3 brokers and returns once it answers; one that runs already is returned.

    `port` is the first broker's, further brokers take the next ones; None or 0 takes free ports, or those of the
    last start in this folder. Raises LocalKafkaError.
    """
    port = port or None
    if brokers not in (1, 3):
        raise LocalKafkaError(f"{brokers} brokers: a local cluster has 1 or 3 (a quorum needs an odd number)")
    if port is not None and not 1 <= port <= PORT_MAX + 1 - brokers:
        raise LocalKafkaError(f"port {port} for {brokers} broker(s): it must be from 1 to {PORT_MAX + 1 - brokers}")
    folder = Path(dir).resolve()
    with _locked(folder):
        known = _read_state(folder)
        if known is not None and known.running():
            return _already_running(known, brokers, port, folder)
        java, libs = jars.java(), jars.resolve()
        # An earlier start may have left some of its brokers: they would hold the ports and the data folders' locks.
        end(known.processes if known else [], STOP_GRACE)
        state = _plan(known, brokers, port, folder)
        _check_ports(state)
        _write_state(folder, state)
        _format(java, libs, state)
        return _started(java, libs, state, folder)


def _started(java: str, libs: Path, state: _State, folder: Path) -> LocalKafka:
    kafka = state.handle(folder)
    try:
        with noted_interrupts() as interrupted:
            state = _spawn_all(java, libs, state, folder)

            def check() -> None:
                if interrupted():
                    raise KeyboardInterrupt
                _check_running(state)

            await_brokers(kafka.bootstrap, len(state.nodes), check, state.cluster_id)
    except BaseException:  # an interrupt, too, leaves no broker behind
        end(state.processes, STOP_GRACE)
        raise
    return state.handle(folder)


def stop(dir: Path | str = "./.rewindq/kafka") -> LocalKafka | None:  # noqa: A002
    """Ends the brokers that were started in this folder; returns what they were, None when none run there."""
    folder = Path(dir).resolve()
    if not (folder / "cluster.json").exists():
        return None
    with _locked(folder):
        state = _read_state(folder)
        if state is None or not any(alive(process) for process in state.processes):
            return None
        end(state.processes, STOP_GRACE)
        _write_state(folder, state._replace(processes=[]))
        return state.handle(folder)


def _already_running(state: _State, brokers: int, port: int | None, folder: Path) -> LocalKafka:
    if len(state.nodes) != brokers or port not in (None, state.nodes[0].port):
        at = state.handle(folder).bootstrap
        raise LocalKafkaError(f"{len(state.nodes)} broker(s) already run at {at} from {folder}: stop them first")
    return state.handle(folder)


def _plan(known: _State | None, brokers: int, port: int | None, folder: Path) -> _State:
    if known is not None:
        if len(known.nodes) != brokers:
            raise LocalKafkaError(
                f"{folder} holds a cluster of {len(known.nodes)} broker(s), not {brokers}: use another "
                "folder, or delete this one"
            )
        if port in (None, known.nodes[0].port):
            return known._replace(nodes=_with_free_controllers(known.nodes), processes=[])
    free = _free_ports(2 * brokers)
    ports = free[:brokers] if port is None else list(range(port, port + brokers))
    nodes = [Node(n + 1, ports[n], free[brokers + n], folder / f"broker-{n + 1}") for n in range(brokers)]
    cluster_id = known.cluster_id if known else base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    return _State(cluster_id, nodes, [])


def _with_free_controllers(nodes: list[Node]) -> list[Node]:
    """Nobody asked for the controllers' ports: where one is taken meanwhile, they move."""
    if all(_is_free(node.controller_port) for node in nodes):
        return nodes
    free = _free_ports(len(nodes))
    return [node._replace(controller_port=port) for node, port in zip(nodes, free, strict=True)]


def _check_ports(state: _State) -> None:
    """Raises LocalKafkaError where another program listens: it would be taken for the broker."""
    for node in state.nodes:
        if not _is_free(node.port):
            raise LocalKafkaError(
                f"port {node.port} of broker {node.id} is in use by another program: end it, or choose another --port"
            )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker does: connections of an earlier one that linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _format(java: str, libs: Path, state: _State) -> None:
    """Writes each node's settings and formats those data folders that are new, side by side."""
    runs: list[subprocess.Popen[str]] = []
    for node in state.nodes:
        node.dir.mkdir(parents=True, exist_ok=True)
        config = node.dir / "server.properties"
        config.write_text(server_properties(node, state.nodes))
        (node.dir / "log4j2.properties").write_text(log4j_properties())
        if (node.dir / "data" / "meta.properties").exists():
            continue
        command = [
            *_java_command(java, libs, node, "-XX:TieredStopAtLevel=1"),
            "kafka.tools.StorageTool",
            "format",
        ]
        command += [f"--cluster-id={state.cluster_id}", "-c", str(config)]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [run.communicate()[0] for run in runs]
    for run, output in zip(runs, outputs, strict=True):
        if run.returncode:
            raise LocalKafkaError(f"formatting the broker's data folder failed: {output.strip()[-800:]}")


def _java_command(java: str, libs: Path, node: Node, *flags: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={node.dir / 'log4j2.properties'}"
    return [java, *_HEAP, *flags, logging, "-cp", f"{libs}/*"]


def _spawn_all(java: str, libs: Path, state: _State, folder: Path) -> _State:
    for node in state.nodes:
        command = [*_java_command(java, libs, node), "kafka.Kafka", str(node.dir / "server.properties")]
        state.processes.append(spawn(command, node.dir / "server.out"))
        # Noted one by one, so that `stop` finds each of them even if this program is killed now.
        _write_state(folder, state)
    return state


def await_brokers(
    bootstrap: str, brokers: int, check: Callable[[], None] = lambda: None, cluster_id: str | None = None
) -> None:
    """Returns when a cluster shows this many brokers; `check` may raise meanwhile.

    Raises LocalKafkaError, also when what answers is another cluster than `cluster_id`.
    """
    deadline = time.monotonic() + START_TIMEOUT
    # Connection errors are what the wait is about: they belong in no log.
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
    admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100, **quiet})
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):  # not yet: asked again until the deadline
            found = admin.list_topics(timeout=0.5)
            if None not in (cluster_id, found.cluster_id) and found.cluster_id != cluster_id:
                raise LocalKafkaError(
                    f"{bootstrap} is answered by another cluster ({found.cluster_id}) than the one started "
                    f"({cluster_id}): end that one, or choose another --port"
                )
            if len(found.brokers) == brokers and (cluster_id is None or found.cluster_id is not None):
                check()
                return
        check()
    raise LocalKafkaError(f"{bootstrap} did not answer within {START_TIMEOUT:.0f} s")


def _check_running(state: _State) -> None:
    for node, process in zip(state.nodes, state.processes, strict=True):
        if wait_ended(process, 0.05):
            raise LocalKafkaError(f"broker {node.id} ended while starting: {_last_words(node)}")


def _last_words(node: Node) -> str:
    out = node.dir / "server.out"
    text = out.read_text(errors="replace").strip()[-800:] if out.exists() else ""
    return f"see {out}: {text}" if text else f"{out} is empty"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "cluster.lock").open("w")
    except OSError as error:
        raise LocalKafkaError(f"{folder} cannot be written ({error.strerror}): name another --dir") from error
    with file as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_state(folder: Path) -> _State | None:
    path = folder / "cluster.json"
    if not path.exists():
        return None
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        nodes = [Node(n["id"], n["port"], n["controller_port"], folder / f"broker-{n['id']}") for n in data["nodes"]]
        return _State(data["cluster_id"], nodes, [Process(*each) for each in data["processes"]])
    except (ValueError, KeyError, TypeError) as error:
        raise LocalKafkaError(f"{path} is damaged ({error}): end its brokers by hand and delete {folder}") from None


def _write_state(folder: Path, state: _State) -> None:
    nodes = [{"id": n.id, "port": n.port, "controller_port": n.controller_port} for n in state.nodes]
    data = {"cluster_id": state.cluster_id, "nodes": nodes, "processes": [list(p) for p in state.processes]}
    temporary = folder / "cluster.json.new"
    temporary.write_text(json.dumps(data))
    temporary.replace(folder / "cluster.json")
