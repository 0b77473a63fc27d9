"""Calling the shop's services from a handler: `charge`, `reserve`, and whether they were done."""

from __future__ import annotations

import asyncio
import json
import os
from decimal import Decimal
from typing import Any, NamedTuple

from .services import GATEWAY, WAREHOUSE

#: Names the services' socket.
ENVIRONMENT = "REWINDQ_DEMO_SERVICES"


class Unavailable(Exception):
    """A service cannot be reached, or refused for now; nothing was booked."""


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Lines:
    """Connections to the services, kept between calls; each carries one call at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[_Connection] = []

    async def ask(self, service: str, do: str, key: str, **details: Any) -> Any:
        """A service's receipt. Raises Unavailable when nothing was booked, ConnectionResetError when nobody knows."""
        connection = await self._take()
        request = {"service": service, "do": do, "key": key, "details": details}
        try:
            connection.writer.write(json.dumps(request).encode() + b"\n")
            line = await connection.reader.readline()
        except BaseException:
            # Also when the call's time is up: an answer that comes later must not be taken for the next call's.
            connection.writer.transport.abort()
            raise
        if not line:
            connection.writer.close()
            raise ConnectionResetError(f"the {service} hung up before it answered")
        self._idle.append(connection)
        answer = json.loads(line)
        if not answer["ok"]:
            raise Unavailable(f"{service}: {answer['reason']}")
        return answer["receipt"]

    async def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            writer = self._idle.pop().writer
            writer.close()
            await writer.wait_closed()

    async def _take(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._idle = loop, []
        if self._idle:
            return self._idle.pop()
        address = os.environ.get(ENVIRONMENT)
        if not address:
            raise Unavailable(
                f"{ENVIRONMENT} is not set: start `python -m rewindq.tools.demo.services --dir DIR` "
                f"and set it to DIR/services.sock"
            )
        try:
            return _Connection(*await asyncio.open_unix_connection(address))
        except OSError as error:
            raise Unavailable(f"nobody answers on {address}: {error}") from error


_lines = Lines()


async def reserve(order_id: int, quantity: int, idempotency_key: str) -> str:
    """Reserves an order's items at the warehouse; its receipt."""
    return str(await _lines.ask(WAREHOUSE, "book", idempotency_key, order_id=order_id, quantity=quantity))


async def find_reservation(idempotency_key: str) -> str | None:
    """The receipt of a reservation, None when it was not made."""
    found: str | None = await _lines.ask(WAREHOUSE, "find", idempotency_key)
    return found


async def charge(order_id: int, customer_id: str, amount: Decimal, idempotency_key: str) -> str:
    """Charges a customer at the gateway; its receipt. `amount` in US dollars."""
    details = {"order_id": order_id, "customer_id": customer_id, "amount": str(amount)}
    return str(await _lines.ask(GATEWAY, "book", idempotency_key, **details))


async def find_charge(idempotency_key: str) -> str | None:
    """The receipt of a charge, None when it was not made."""
    found: str | None = await _lines.ask(GATEWAY, "find", idempotency_key)
    return found
