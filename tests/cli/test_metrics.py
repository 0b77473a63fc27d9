"""A running worker tells Prometheus what it does."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.cli import Shell

APP = "tests.support.apps:app"
pytestmark = pytest.mark.process


def scrape(host: str, port: int) -> dict[str, float]:
    """The worker's samples by name and outcome."""
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for sample in samples
        if sample.name.startswith("rewindq_")
    }


def free_port(host: str) -> int:
    with socket.socket() as free:
        free.bind((host, 0))
        port: int = free.getsockname()[1]
        return port


# The second address stands for every other than the default: on Linux all of 127/8 is this machine.
@pytest.mark.parametrize(("host", "elsewhere"), [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_a_running_worker_is_scraped_where_it_was_told(shell: Shell, host: str, elsewhere: str) -> None:
    port = free_port(host)
    given = [] if host == "127.0.0.1" else ["--metrics-host", host]
    worker = shell.start("worker", "--app", APP, "--metrics-port", str(port), *given)
    try:
        refused = ["deposit", "--payload", '{"account": "a", "amount": 0}', "--wait"]
        assert shell.run_inside("submit", "echo", "--payload", "{}", "--wait").code == 0
        assert shell.run_inside("submit", *refused).code == 1
        samples = scrape(host, port)
        with pytest.raises(urllib.error.URLError):
            scrape(elsewhere, port)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, told = worker.communicate(timeout=60)
    assert worker.returncode == 0, told
    assert samples["rewindq_attempts_total succeeded"] == 1
    assert samples["rewindq_attempts_total failed"] == 1
    assert samples["rewindq_attempts_total retried"] == 0
    assert samples["rewindq_turns_total"] > 0
    assert samples["rewindq_records_total"] > 0
    assert samples["rewindq_partitions_owned"] > 0
    assert samples["rewindq_jobs_held"] == 0


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = shell.run("worker", "--app", APP, "--until-idle", "--metrics-port", str(port))
    assert ended.code == 2
    assert f"127.0.0.1:{port} (Address already in use): name another address" in ended.err
