"""`rewindq kafka`: a real local broker for development and tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..kafka_local import LocalKafka, LocalKafkaError, start, stop
from .errors import FAILED
from .options import Call, command
from .program import Group

kafka_app = typer.Typer(
    name="kafka",
    cls=Group,
    help="A real local Kafka on this machine's Java, for development and tests.",
    no_args_is_help=True,
)

_Dir = Annotated[Path, typer.Option("--dir", help="The folder of the cluster's data, output and state.")]
_DEFAULT_DIR = Path(".rewindq/kafka")


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(kafka_app)


@command(kafka_app, "start")
def start_command(
    call: Call,
    brokers: Annotated[int, typer.Option(help="1, or 3 with every record on three brokers.")] = 1,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The first broker's port; free ones by default.")
    ] = None,
    folder: _Dir = _DEFAULT_DIR,
) -> None:
    """Starts a local cluster and returns once it answers.

    Example: rewindq kafka start --port 9092 && rewindq --log kafka://127.0.0.1:9092 doctor
    """
    try:
        kafka = start(brokers, port, folder)
    except LocalKafkaError as error:
        call.fail(error, FAILED)
    _show(call, kafka, f"Kafka answers at {kafka.bootstrap} (pids {_joined(kafka)}, data in {kafka.dir})")


@command(kafka_app, "stop")
def stop_command(call: Call, folder: _Dir = _DEFAULT_DIR) -> None:
    """Stops the cluster that was started in this folder; its records stay.

    Example: rewindq kafka stop
    """
    try:
        kafka = stop(folder)
    except LocalKafkaError as error:
        call.fail(error, FAILED)
    if kafka is None:
        _show(call, LocalKafka("", (), folder.resolve()), f"no broker runs from {folder}")
    else:
        _show(call, kafka, f"stopped {kafka.bootstrap} (pids {_joined(kafka)})")


def _joined(kafka: LocalKafka) -> str:
    return ", ".join(str(pid) for pid in kafka.pids)


def _show(call: Call, kafka: LocalKafka, text: str) -> None:
    data = {"bootstrap": kafka.bootstrap, "pids": list(kafka.pids), "dir": str(kafka.dir)}
    call.show(data, lambda console: console.print(text, markup=False, soft_wrap=True))
