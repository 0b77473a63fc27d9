"""An app that reaches out while it is imported."""

from __future__ import annotations

import socket

from rewindq import App

app = App("connecting")

try:
    socket.create_connection(("127.0.0.1", 9), timeout=1)
except OSError:
    REACHED = False
