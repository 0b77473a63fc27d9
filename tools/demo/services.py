"""The shop's outside world in a process of its own: a payment gateway and a warehouse, each with its own ledger.

They answer JSON lines on a Unix socket, so the demo needs no network:

    {"service": "gateway", "do": "book", "key": K, "details": {...}}  ->  {"ok": true, "receipt": R}
    {"service": "gateway", "do": "find", "key": K}                    ->  {"ok": true, "receipt": R or null}

The gateway makes faults now and then: an error before it charges, a charge whose answer never comes, a late answer.
It does not dedupe by key unless told so: who sends a charge twice is charged twice, and the ledger shows it.

As a program: `python -m rewindq.tools.demo.services --dir D [--faults RATE] [--seed N]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .faults import Fault, Faults
from .ledger import Ledger

SOCKET = "services.sock"
GATEWAY = "gateway"
WAREHOUSE = "warehouse"
#: How long a slow answer takes, in seconds.
SLOW_S = 0.3
#: Longest address of a Unix socket on Linux.
_ADDRESS_MAX = 107

Answer = dict[str, Any]


def ledger_path(folder: Path, service: str) -> Path:
    """Where a service keeps its ledger."""
    return folder / f"{service}.jsonl"


class Service:
    """Books under keys, and finds what it has booked. `latency` seconds go by before it books."""

    def __init__(self, ledger: Ledger, reference: str, faults: Faults, latency: float, dedupe: bool) -> None:
        self._ledger = ledger
        self._reference = reference
        self._faults = faults
        self._latency = latency
        self._dedupe = dedupe

    async def answer(self, request: dict[str, Any], caller: int) -> Answer | None:
        """The answer to a request, None where none is to come. `caller` is the connection's file descriptor."""
        key = request["key"]
        if request["do"] == "find":
            found = self._ledger.find(key)
            return {"ok": True, "receipt": found and found["receipt"]}
        fault = self._faults.draw(key)
        await asyncio.sleep(self._latency)
        if fault is Fault.REFUSE:
            return {"ok": False, "reason": "temporarily unavailable, nothing was booked"}
        # A caller that has hung up may be looking the booking up already and be told that it was not made. So nothing
        # is booked for it any more: what is not booked when the caller hangs up never will be.
        if hung_up(caller):
            return None
        entry = self._ledger.find(key) if self._dedupe else None
        entry = entry or self._ledger.book(key, self._reference, request["details"])
        if fault is Fault.SILENCE:
            return None
        if fault is Fault.SLOW:
            await asyncio.sleep(SLOW_S)
        return {"ok": True, "receipt": entry["receipt"]}


def hung_up(descriptor: int) -> bool:
    """Whether the other end of a stream socket has closed it, without reading from it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(0))


async def talk(services: dict[str, Service], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one connection's requests, one after another, until the caller hangs up."""
    caller: int = writer.get_extra_info("socket").fileno()
    try:
        while line := await reader.readline():
            request = json.loads(line)
            answer = await services[request["service"]].answer(request, caller)
            if answer is not None:
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()


async def serve(arguments: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT, or with `--attached` until stdin closes."""
    folder: Path = arguments.dir
    address = folder / SOCKET
    ledgers = {name: Ledger(ledger_path(folder, name)) for name in (GATEWAY, WAREHOUSE)}
    rates = {GATEWAY: arguments.faults, WAREHOUSE: 0.0}
    services = {
        name: Service(ledger, name[0], Faults(rates[name], arguments.seed), arguments.latency, arguments.dedupe)
        for name, ledger in ledgers.items()
    }
    callers: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        callers.add(task)
        task.add_done_callback(callers.discard)
        await talk(services, reader, writer)

    server = await asyncio.start_unix_server(accept, address)
    print(f"the services listen on {address}", flush=True)
    await _told_to_end(arguments.attached)
    server.close()
    for task in tuple(callers):
        task.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    address.unlink(missing_ok=True)
    for ledger in ledgers.values():
        ledger.close()


async def _told_to_end(attached: bool) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if attached:
        loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line's arguments."""
    parser = argparse.ArgumentParser(prog="python -m rewindq.tools.demo.services", description=__doc__.split("\n")[0])
    parser.add_argument("--dir", type=Path, required=True, help="folder of the socket and the ledgers")
    parser.add_argument("--faults", type=float, default=0.08, help="share of charges that go wrong, 0 to 1")
    parser.add_argument("--seed", type=int, default=1, help="which charges go wrong")
    parser.add_argument("--latency", type=float, default=0.01, help="seconds before a booking is made")
    parser.add_argument("--dedupe", action="store_true", help="a key that is booked already is not booked again")
    parser.add_argument("--attached", action="store_true", help="end when stdin closes")
    return parser.parse_args(arguments)


def main() -> int:
    """Serves as the command line says."""
    arguments = parse()
    if len(os.fsencode(arguments.dir / SOCKET)) > _ADDRESS_MAX:
        print(f"error: --dir {arguments.dir}: too long for a Unix socket; take a shorter one", file=sys.stderr)
        return 2
    try:
        arguments.dir.mkdir(parents=True, exist_ok=True)
        asyncio.run(serve(arguments))
    except (OSError, ValueError) as error:
        print(f"error: the services cannot run in {arguments.dir}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
