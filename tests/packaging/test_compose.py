"""The compose folder is consistent: what it names exists, and its numbers fit together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rewindq.tools.kafka_local.jars import KAFKA_VERSION

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
BROKERS = ("kafka-1", "kafka-2", "kafka-3")


def load(path: str) -> Any:
    return yaml.safe_load((COMPOSE / path).read_text())


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = load("compose.yml")["services"]
    return loaded


def addresses(value: str) -> dict[str, str]:
    return dict(part.split("://") for part in value.split(","))


def test_the_services_are_those_of_the_readme(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {*BROKERS, "schema-registry", "worker", "prometheus", "grafana"}
    readme = (COMPOSE / "README.md").read_text()
    for name, service in services.items():
        assert f"`{name}`" in readme
        for port in service.get("ports", []):
            assert f":{port.split(':')[1]}" in readme


def test_images_are_pinned(services: dict[str, dict[str, Any]]) -> None:
    images = [service["image"] for service in services.values()]
    images += re.findall(r"^FROM (\S+)", (COMPOSE / "Dockerfile").read_text(), re.MULTILINE)
    for image in images:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*", image), image
    assert services["kafka-1"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_files_that_are_named_exist(services: dict[str, dict[str, Any]]) -> None:
    volumes = load("compose.yml")["volumes"]
    used = set()
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source
            else:
                used.add(source)
    assert used == set(volumes)
    build = services["worker"]["build"]
    assert (COMPOSE / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    for line in (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines():
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line


def test_only_this_machine_reaches_the_ports(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_brokers_form_one_cluster(services: dict[str, dict[str, Any]]) -> None:
    environments = [services[name]["environment"] for name in BROKERS]
    own = {"KAFKA_NODE_ID", "KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"}
    shared = [{k: v for k, v in each.items() if k not in own} for each in environments]
    assert shared[0] == shared[1] == shared[2]
    assert [each["KAFKA_NODE_ID"] for each in environments] == [1, 2, 3]
    voters = environments[0]["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    assert voters == [f"{number}@{name}:9093" for number, name in enumerate(BROKERS, 1)]


def test_listeners_are_reached_where_they_are_advertised(services: dict[str, dict[str, Any]]) -> None:
    for name in BROKERS:
        environment = services[name]["environment"]
        listening = addresses(environment["KAFKA_LISTENERS"])
        advertised = addresses(environment["KAFKA_ADVERTISED_LISTENERS"])
        assert advertised["INTERNAL"] == f"{name}{listening['INTERNAL']}"
        assert advertised["HOST"] == f"localhost{listening['HOST']}"
        port = listening["HOST"].lstrip(":")
        assert services[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
        known = environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"]
        assert {part.split(":")[0] for part in known.split(",")} == set(listening)


def test_one_broker_may_be_lost(services: dict[str, dict[str, Any]]) -> None:
    environment = services["kafka-1"]["environment"]
    copies = {name: value for name, value in environment.items() if name.endswith("REPLICATION_FACTOR")}
    in_sync = {name: value for name, value in environment.items() if name.endswith(("MIN_ISR", "MIN_INSYNC_REPLICAS"))}
    assert len(copies) == 4
    assert len(in_sync) == 3
    assert set(copies.values()) == {len(BROKERS)}
    assert set(in_sync.values()) == {len(BROKERS) - 1}
    assert environment["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"


def test_clients_name_the_internal_listeners(services: dict[str, dict[str, Any]]) -> None:
    internal = ",".join(
        addresses(services[name]["environment"]["KAFKA_ADVERTISED_LISTENERS"])["INTERNAL"] for name in BROKERS
    )
    worker = services["worker"]["environment"]
    registry = services["schema-registry"]["environment"]
    assert worker["REWINDQ_LOG"] == f"kafka://{internal}"
    assert registry["SCHEMA_REGISTRY_KAFKASTORE_BOOTSTRAP_SERVERS"] == internal
    assert worker["REWINDQ_SCHEMA_REGISTRY_URL"] == registry["SCHEMA_REGISTRY_LISTENERS"].replace(
        "0.0.0.0", "schema-registry"
    )


def test_the_worker_is_given_longer_than_its_own_grace(services: dict[str, dict[str, Any]]) -> None:
    command = services["worker"]["command"]
    grace = int(command[command.index("--grace") + 1])
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > grace


def test_prometheus_scrapes_the_worker_and_grafana_reads_prometheus(services: dict[str, dict[str, Any]]) -> None:
    command = services["worker"]["command"]
    port = command[command.index("--metrics-port") + 1]
    assert command[command.index("--metrics-host") + 1] == "0.0.0.0"
    (job, own) = load("prometheus/prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"worker:{port}"]}]
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    own_port = own["static_configs"][0]["targets"][0].split(":")[1]
    assert source["url"] == f"http://prometheus:{own_port}"
    assert services["prometheus"]["ports"] == [f"127.0.0.1:{own_port}:{own_port}"]
    assert "ports" not in services["worker"]


def test_the_dashboard_shows_metrics_that_a_worker_has(services: dict[str, dict[str, Any]]) -> None:
    dashboard = json.loads((COMPOSE / "grafana/dashboards/rewindq.json").read_text())
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    (provider,) = load("grafana/provisioning/dashboards/rewindq.yml")["providers"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    exposed = set(re.findall(r'"(rewindq_\w+)"', (ROOT / "processors/worker/daemon.py").read_text()))
    assert exposed
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        for target in panel["targets"]:
            for metric in re.findall(r"rewindq_\w+", target["expr"]):
                assert metric.removesuffix("_total") in exposed, metric
