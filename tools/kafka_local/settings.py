"""What a local broker is told: `server.properties` and its logging."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"


class Node(NamedTuple):
    """One broker that is its own controller too: node id from 1, loopback ports, its folder."""

    id: int
    port: int
    controller_port: int
    dir: Path


def server_properties(node: Node, nodes: list[Node]) -> str:
    """The `server.properties` of one node of a cluster."""
    copies = len(nodes)
    in_sync = 2 if copies >= 3 else 1
    values: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in nodes),
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": node.dir / "data",
        # A misspelt topic must be an error, never a new topic with a default partition count.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        # A lone joining member would otherwise wait 3 s for others.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        # A dead worker's open transaction hides what is behind it until it is ended: soon after its time-out, not
        # up to 10 s later.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # Few partitions of the internal topics: they are made at first use, 50 of them take seconds.
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 1,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
        "log.segment.bytes": 128 * 1024 * 1024,
    }
    for topic, min_isr in (
        ("offsets.topic", None),
        ("transaction.state.log", "transaction.state.log.min.isr"),
        ("share.coordinator.state.topic", "share.coordinator.state.topic.min.isr"),
    ):
        values[f"{topic}.replication.factor"] = copies
        if min_isr:
            values[min_isr] = in_sync
    return "".join(f"{name}={value}\n" for name, value in values.items())


def log4j_properties() -> str:
    """Warnings and errors to stdout, which the cluster puts into the node's `server.out`."""
    return (
        "status=error\n"
        "appender.out.type=Console\n"
        "appender.out.name=out\n"
        "appender.out.layout.type=PatternLayout\n"
        "appender.out.layout.pattern=%d %p %c{1}: %m%n\n"
        "rootLogger.level=warn\n"
        "rootLogger.appenderRef.out.ref=out\n"
    )
