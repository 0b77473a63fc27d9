"""The local broker: found again, stopped safely, and clear about what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker import require_local
from typer.testing import CliRunner

from rewindq.engine.log.kafka import open_kafka
from rewindq.tools.cli.kafka import kafka_app
from rewindq.tools.kafka_local import LocalKafkaError, jars, start, stop
from rewindq.tools.kafka_local.processes import Process, alive, end, spawn, start_ticks
from rewindq.tools.kafka_local.settings import Node, server_properties


@pytest.mark.kafka
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_bootstrap")
def test_a_cluster_is_found_again_stopped_and_started_as_the_same(tmp_path: Path) -> None:
    require_local()
    folder = str(tmp_path / "kafka")
    runner = CliRunner()
    try:
        started = runner.invoke(kafka_app, ["start", "--dir", folder, "--json"])
        assert started.exit_code == 0, started.stderr
        first = json.loads(started.stdout)
        assert start(dir=folder).pids == tuple(first["pids"])
        with pytest.raises(LocalKafkaError, match="already run at"):
            start(brokers=3, dir=folder)
        identity = open_kafka(f"kafka://{first['bootstrap']}").identity()
        stopped = json.loads(runner.invoke(kafka_app, ["stop", "--dir", folder, "--json"]).stdout)
        assert stopped == first
        assert all(start_ticks(pid) is None for pid in first["pids"])
        again = start(dir=folder)
        assert again.bootstrap == first["bootstrap"]
        assert again.pids != tuple(first["pids"])
        assert open_kafka(f"kafka://{again.bootstrap}").identity() == identity
    finally:
        stop(folder)
    assert stop(folder) is None


def test_a_reused_pid_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    """The state names a pid that some other program has now."""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticks = start_ticks(bystander.pid)
        assert ticks is not None
        assert alive(Process(bystander.pid, ticks))
        state = {"cluster_id": "x", "nodes": [], "processes": [[bystander.pid, ticks - 1]]}
        (tmp_path / "cluster.json").write_text(json.dumps(state))
        assert stop(tmp_path) is None
        assert bystander.poll() is None
    finally:
        bystander.communicate(b"\n")


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    process = spawn([sys.executable, "-c", code], out)
    while not (out.exists() and out.read_text()):
        os.sched_yield()
    end([process], grace=0.2)
    assert not alive(process)


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(LocalKafkaError, match=r"cluster\.json is damaged"):
        stop(tmp_path)


def test_a_quorum_needs_an_odd_number(tmp_path: Path) -> None:
    with pytest.raises(LocalKafkaError, match="1 or 3"):
        start(brokers=2, dir=tmp_path)
    assert CliRunner().invoke(kafka_app, ["start", "--brokers", "2", "--dir", str(tmp_path)]).exit_code == 1


def test_missing_programs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LocalKafkaError, match="no java: set JAVA_HOME"):
        jars.java()
    with pytest.raises(LocalKafkaError, match="no mvn"):
        jars.resolve()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    with pytest.raises(LocalKafkaError, match="is Java 11"):
        jars.java()


@pytest.mark.parametrize(("brokers", "in_sync"), [(1, 1), (3, 2)])
def test_copies_follow_the_number_of_brokers(brokers: int, in_sync: int) -> None:
    nodes = [Node(n, 9000 + n, 9100 + n, Path(f"/data/{n}")) for n in range(1, brokers + 1)]
    lines = server_properties(nodes[0], nodes).splitlines()
    values = dict(line.split("=", 1) for line in lines)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert values[f"{topic}.replication.factor"] == str(brokers)
    assert values["transaction.state.log.min.isr"] == str(in_sync)
    assert values["min.insync.replicas"] == str(in_sync)
    assert values["controller.quorum.voters"].count("@") == brokers
