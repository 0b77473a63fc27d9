"""`rewindq kafka`: a real local broker for development and tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..kafka_local import LocalKafka, LocalKafkaError, start, stop

kafka_app = typer.Typer(
    name="kafka",
    help="A real local Kafka on this machine's Java, for development and tests.",
    no_args_is_help=True,
)

_Dir = Annotated[Path, typer.Option("--dir", help="The folder of the cluster's data, output and state.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
_DEFAULT_DIR = Path(".rewindq/kafka")


@kafka_app.command("start")
def start_command(
    brokers: Annotated[int, typer.Option(help="1, or 3 with every record on three brokers.")] = 1,
    port: Annotated[int | None, typer.Option(help="The first broker's port; free ones by default.")] = None,
    folder: _Dir = _DEFAULT_DIR,
    as_json: _Json = False,
) -> None:
    """Starts a local cluster and returns once it answers.

    Example: rewindq kafka start --port 9092 && rewindq --log kafka://127.0.0.1:9092 doctor
    """
    try:
        kafka = start(brokers, port, folder)
    except LocalKafkaError as error:
        raise _failed(error) from None
    _show(kafka, as_json, f"Kafka answers at {kafka.bootstrap} (pids {_joined(kafka)}, data in {kafka.dir})")


@kafka_app.command("stop")
def stop_command(folder: _Dir = _DEFAULT_DIR, as_json: _Json = False) -> None:
    """Stops the cluster that was started in this folder; its records stay.

    Example: rewindq kafka stop
    """
    try:
        kafka = stop(folder)
    except LocalKafkaError as error:
        raise _failed(error) from None
    if kafka is None:
        _show(LocalKafka("", (), folder.resolve()), as_json, f"no broker runs from {folder}")
    else:
        _show(kafka, as_json, f"stopped {kafka.bootstrap} (pids {_joined(kafka)})")


def _joined(kafka: LocalKafka) -> str:
    return ", ".join(str(pid) for pid in kafka.pids)


def _show(kafka: LocalKafka, as_json: bool, text: str) -> None:
    data = {"bootstrap": kafka.bootstrap, "pids": list(kafka.pids), "dir": str(kafka.dir)}
    typer.echo(json.dumps(data) if as_json else text)


def _failed(error: LocalKafkaError) -> typer.Exit:
    typer.echo(f"kafka: {error}", err=True)
    return typer.Exit(1)
