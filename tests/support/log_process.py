"""A process that uses an embedded log, told what to do on its standard input, and the test's side of it."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.logs import join, record, turn

from rewindq.engine.log.sqlite import SqliteLog
from rewindq.engine.ports.log import LogError


def _append(path: str, topic: str, word: str, count: str) -> None:
    log = SqliteLog(path)
    producer = log.producer()
    for i in range(int(count)):
        offsets = producer.append([record(topic, 0, f"{word} {i} {part}".encode()) for part in range(3)])
        print("appended", offsets[0], flush=True)
    log.close()


def _member(path: str, group: str, topic: str, lease_ttl: str) -> None:
    """Polls until it owns something, then only commits: `commit PARTITION VALUE` appends to "events"."""
    log = SqliteLog(path, lease_ttl=float(lease_ttl))
    worker = join(log, group, [topic], "child")
    while not worker.owner.owned:
        worker.poll()
    print("owns", sorted(worker.owner.owned), flush=True)
    for line in sys.stdin:
        _, partition, value = line.split()
        try:
            worker.member.commit(
                turn([record("events", 0, value.encode())], {(topic, int(partition)): 7}, int(partition))
            )
            print("committed", flush=True)
        except LogError as error:
            print(type(error).__name__, error, flush=True)


class Child:
    """A started process; its output lines come one by one."""

    def __init__(self, *arguments: str | Path) -> None:
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.log_process", *map(str, arguments)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def line(self, timeout: float = 30.0) -> str:
        """The next line; '' at the end."""
        return self._lines.get(timeout=timeout)

    def tell(self, line: str) -> str:
        """Writes a line and returns the answer."""
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """Kills it if need be and takes its remains away."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


if __name__ == "__main__":
    {"append": _append, "member": _member}[sys.argv[1]](*sys.argv[2:])
