"""A small shop whose handler has a bug: points come from a stale cache."""

from __future__ import annotations

import ctypes
import os
import socket
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from pydantic import BaseModel
from tests.support.replay_tricks import TRICKS, harmless

from rewindq import App, Context

app = App("replay-shop")


class Order(BaseModel):
    """An order; `trick` names a way around `ctx` that is taken only in a replay."""

    order_id: str
    customer: str
    amount: int
    trick: str = ""


def charge(order_id: str, amount: int) -> str:
    """The gateway: one line in its ledger a call."""
    with Path(os.environ["REPLAY_LEDGER"]).open("a") as ledger:
        ledger.write(f"{order_id} {amount}\n")
    return f"receipt-{order_id}"


app.cache_source("points", lambda key: (0, "stale"))


def around(trick: str) -> None:
    """Touches the outside world without `ctx`."""
    if trick == "socket":
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    elif trick == "connect":
        socket.socket(socket.AF_UNIX).connect("nobody.sock")
    elif trick == "udp":
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
    elif trick == "url":
        urlopen("http://127.0.0.1:9/", timeout=1)
    elif trick == "program":
        subprocess.run([sys.executable, "-c", "pass"], check=False)
    elif trick == "system":
        os.system("true")
    elif trick == "fork":
        os.fork()
    elif trick == "write":
        Path(os.environ["REPLAY_LEDGER"]).write_text("overwritten")
    elif trick == "append":
        charge("again", 1)
    elif trick == "remove":
        Path(os.environ["REPLAY_LEDGER"]).unlink()
    elif trick == "rename":
        Path(os.environ["REPLAY_LEDGER"]).rename(os.environ["REPLAY_LEDGER"] + ".moved")
    elif trick == "mkdir":
        Path(os.environ["REPLAY_LEDGER"] + ".d").mkdir()
    elif trick == "sqlite":
        sqlite3.connect(os.environ["REPLAY_LEDGER"] + ".db")
    elif trick == "swallowed":
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        except Exception:
            return
    elif trick == "native":
        _connect_natively(int(os.environ["REPLAY_PORT"]))
    elif trick == "flee":
        around("swallowed")
        ctypes.CDLL(None)._exit(0)
    elif trick == "harmless":
        harmless()
    elif trick in TRICKS:
        TRICKS[trick][1]()
    elif trick == "spawn":
        import multiprocessing

        multiprocessing.get_context("spawn").Process(target=print).start()


def _connect_natively(port: int) -> None:
    """Connects as a C client does, past the interpreter."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))
    handle = libc.socket(int(socket.AF_INET), int(socket.SOCK_STREAM), 0)
    if libc.connect(handle, address, len(address)) == 0:
        raise RuntimeError("a native client has connected")


@app.job(key="customer:{customer}")
async def order(ctx: Context, job: Order) -> int:
    """Charges, then writes what the customer has."""
    customer = await ctx.load("customer", job.customer)
    cached = await ctx.cache("points", f"customer:{job.customer}")
    receipt: str = await ctx.effect("charge", charge, job.order_id, job.amount, key=job.order_id)
    if ctx.mode != "live":
        around(job.trick)
    points = int(cached or 0) + job.amount
    changes = {"points": points, "orders": customer.get("orders", 0) + 1, "last": receipt}
    await ctx.save("customer", job.customer, changes, expected=customer.version)
    return points
