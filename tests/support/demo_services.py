"""The demo's services as a process, for tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from rewindq.tools.demo.ledger import read_ledger
from rewindq.tools.demo.services import GATEWAY, ledger_path


class Running:
    """The services as a process, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "rewindq.tools.demo.services", "--dir", ".", *options]
        self._process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert b"listen" in self._process.stdout.readline()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(number)
        code = self._process.wait(20)
        self._process.stdout.close()
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def booked(self, service: str = GATEWAY) -> list[str]:
        return [entry["key"] for entry in read_ledger(ledger_path(self.folder, service))]
