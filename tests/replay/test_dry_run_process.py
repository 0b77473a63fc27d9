"""A dry-run in its own process: isolated, and named where the code goes around `ctx`."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import replay_tricks

from rewindq.engine.replay.replays import dry_run, trace
from rewindq.engine.runtime.app import AppError

from .conftest import FIXED, SHOP, Shop

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
UNHEARD = replay_tricks.TRICKS
TRICKS = {
    "socket": "socket.",
    "connect": "socket.connect",
    "udp": "socket.",
    "url": "urllib.Request",
    "program": "subprocess.Popen",
    "system": "os.system",
    "fork": "os.fork",
    "write": "open",
    "append": "open",
    "remove": "os.remove",
    "rename": "os.rename",
    "mkdir": "os.mkdir",
    "sqlite": "sqlite3.connect",
    "swallowed": "socket.",
    "flee": "socket.",
    "spawn": "_posixsubprocess.fork_exec",
}


def test_the_same_code_takes_the_same_path_and_touches_nothing(shop: Shop) -> None:
    before = shop.production()
    for number in (1, 2, 3):
        replayed = dry_run(shop.deployment, f"job-{number}", app=SHOP)
        assert (replayed.shown["outcome"], replayed.shown["divergences"]) == ("succeeded", [])
        assert (replayed.differs, replayed.blocked, replayed.shown["status"]) == (False, False, "same")
    assert shop.production() == before


def test_other_code_diverges(shop: Shop) -> None:
    replayed = dry_run(shop.deployment, "job-2", app=FIXED)
    kinds = [(one["kind"], one["step"]) for one in replayed.shown["divergences"]]
    assert kinds == [
        ("missing_step", "cache points/customer:c1"),
        ("write_differs", "save customer:c1"),
        ("result_differs", None),
    ]
    assert replayed.differs and replayed.shown["status"] == "diverged"


def test_code_that_goes_around_ctx_is_stopped_and_named(shop: Shop) -> None:
    for number, trick in enumerate(TRICKS, 4):
        shop.order(number, trick=trick)
    shop.work()
    before = shop.production()
    for number, (trick, event) in enumerate(TRICKS.items(), 4):
        replayed = dry_run(shop.deployment, f"job-{number}", app=SHOP)
        assert (trick, replayed.blocked, replayed.shown["outcome"]) == (trick, True, "blocked")
        first = replayed.shown["violations"][0]
        assert (trick, first["event"].startswith(event)) == (trick, True)
        assert "replay_shop.py:" in first["place"]
    assert shop.production() == before


@pytest.mark.parametrize("trick", UNHEARD)
def test_what_raises_no_audit_event_is_stopped_and_named(shop: Shop, trick: str) -> None:
    shop.order(4, trick=trick)
    shop.work()
    before, files = shop.production(), _files(shop)
    replayed = dry_run(shop.deployment, "job-4", app=SHOP)
    assert (replayed.blocked, replayed.shown["outcome"]) == (True, "blocked"), replayed.shown
    first = replayed.shown["violations"][0]
    assert first["event"].startswith(UNHEARD[trick][0]), first
    assert ("replay_tricks.py:" if "." in first["event"] or first["event"] == "open" else "native code") in first[
        "place"
    ]
    assert (shop.production(), _files(shop)) == (before, files)


def test_what_stays_within_the_process_is_let_be(shop: Shop) -> None:
    shop.order(4, trick="harmless")
    shop.work()
    shown = dry_run(shop.deployment, "job-4", app=SHOP).shown
    assert (shown["outcome"], shown["status"], shown["violations"]) == ("succeeded", "same", []), shown


def _files(shop: Shop) -> dict[str, tuple[int, int]]:
    """What stands beside the ledger, by mode and time."""
    beside = (path for path in shop.ledger.parent.iterdir() if path.name.startswith(shop.ledger.name))
    return {path.name: (path.stat().st_mode, path.stat().st_mtime_ns) for path in beside}


def test_native_code_connects_to_nothing_and_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("REPLAY_PORT", str(port))
        shop.order(4, trick="native")
        shop.work()
        shown = dry_run(shop.deployment, "job-4", app=SHOP).shown
        assert shown["outcome"] == "blocked"
        assert shown["violations"] == [{"event": "connect", "argument": f"127.0.0.1:{port}", "place": "native code"}]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_where_the_kernel_shows_nothing_native_calls_fail(tmp_path: Path) -> None:
    program = (
        "import ctypes, sys; from rewindq.engine.replay.kernel import close_kernel; assert close_kernel();"
        f"libc = ctypes.CDLL(None); path = {str(tmp_path / 'made')!r}.encode();"
        "sys.exit(any(call >= 0 for call in (libc.mkdir(path, 448), libc.mkfifo(path, 384), libc.kill(1, 0))))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT).returncode == 0
    assert not (tmp_path / "made").exists()


def test_an_app_that_connects_while_it_is_imported_is_named(shop: Shop) -> None:
    replayed = dry_run(shop.deployment, "job-1", app="tests.support.connecting_app:app")
    assert replayed.blocked
    assert "connecting_app.py:" in replayed.shown["violations"][0]["place"]


def test_an_app_that_cannot_be_loaded_is_an_error(shop: Shop) -> None:
    with pytest.raises(AppError, match="no_such_module"):
        dry_run(shop.deployment, "job-1", app="no_such_module:app")


def test_trace_mode_runs_no_code(shop: Shop) -> None:
    shown = trace(shop.deployment, "job-2").shown
    assert (shown["mode"], shown["outcome"], shown["failed_step"]) == ("trace", "succeeded", None)
    assert [step["step"] for step in shown["steps"]][2] == "charge"
    assert shown["ends_here"] is None and shown["in_doubt"] == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_replaying_process_connects_to_nothing_and_starts_nothing(shop: Shop, tmp_path: Path) -> None:
    program = (
        "import sys; from rewindq.engine.replay.replays import dry_run;"
        "from rewindq.engine.runtime.deployment import Deployment;"
        "from rewindq.engine.runtime.settings import load_settings;"
        f"d = Deployment.open(load_settings(log={shop.deployment.log.url!r}, namespace='shop',"
        f" state_dir={str(shop.deployment.settings.state_dir)!r}));"
        f"sys.exit(0 if dry_run(d, 'job-2', app={SHOP!r}).shown['status'] == 'same' else 1)"
    )
    calls = tmp_path / "calls"
    command = ["strace", "-f", "-e", "trace=connect,execve", "-o", str(calls), sys.executable, "-c", program]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    lines = [line for line in calls.read_text().splitlines() if "connect(" in line or "execve(" in line]
    started = [line for line in lines if "execve(" in line and line.rstrip().endswith("= 0")]
    assert len(started) == 2 and "rewindq.engine.replay.child" in started[1]
    assert [line for line in lines if "connect(" in line] == []
