"""The demo's folder: log, state, ledgers and orders, and a `rewindq.toml` by which commands typed in it find them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from rewindq.engine.runtime.settings import Settings, load_settings

from .orders import Order, write_submissions

#: Marks a folder as a demo's, so that nothing else is ever emptied.
_MARK = "demo.json"
APP = "rewindq.tools.demo.shop:app"
FIXED_APP = "rewindq.tools.demo.shop_fixed:app"
PARTITIONS = 8


class NotADemo(Exception):
    """The folder holds something else. Says so, and what to do."""


class Place:
    """A demo's folder, emptied of an earlier demo. Raises NotADemo, OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADemo(f"{folder} is not a folder; name another with --keep")
        if self.folder.exists() and any(self.folder.iterdir()):
            if not (self.folder / _MARK).exists():
                raise NotADemo(f"{folder} holds something that is not a demo; name another folder with --keep")
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _MARK).write_text(json.dumps({"demo": "rewindq"}) + "\n", encoding="utf-8")
        self._write_settings()

    @property
    def typed(self) -> str:
        """The folder as a person would type it."""
        here = Path.cwd()
        return str(self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder)

    @property
    def orders(self) -> Path:
        """The orders as `submit --file` reads them."""
        return self.folder / "orders.jsonl"

    @property
    def settings(self) -> Settings:
        """The same as commands in the folder have."""
        return load_settings(
            log=self._log, state_dir=self.folder / "state", namespace="rewindq", partitions=PARTITIONS, app=APP
        )

    @property
    def _log(self) -> str:
        return f"sqlite:///{self.folder / 'log.db'}"

    def _write_settings(self) -> None:
        given = {"log": self._log, "state_dir": str(self.folder / "state"), "app": APP}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in given.items()]
        lines.append(f"partitions = {PARTITIONS}\n")
        (self.folder / "rewindq.toml").write_text("".join(lines), encoding="utf-8")

    def write_orders(self, orders: Sequence[Order]) -> None:
        """Writes the orders down as lines to submit."""
        with self.orders.open("w", encoding="utf-8") as out:
            write_submissions(orders, out)
