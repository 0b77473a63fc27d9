"""The demo's services: their ledgers, faults, lookups, and calls from the shop."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from tests.support.demo_services import Running

from rewindq.tools.demo.calls import ENVIRONMENT, Lines, Unavailable
from rewindq.tools.demo.faults import Fault, Faults
from rewindq.tools.demo.ledger import Ledger, read_ledger
from rewindq.tools.demo.services import GATEWAY, SOCKET, WAREHOUSE


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ENVIRONMENT, SOCKET)
    services = Running(tmp_path)
    yield services
    services.close()


def with_lines(calls: Callable[[Lines], Awaitable[None]]) -> None:
    """Runs calls, and closes what they have opened."""

    async def run() -> None:
        lines = Lines()
        try:
            await calls(lines)
        finally:
            await lines.close()

    asyncio.run(run())


async def book(lines: Lines, key: str, timeout: float = 10) -> str:
    async with asyncio.timeout(timeout):
        return str(await lines.ask(GATEWAY, "book", key, amount="1.00"))


async def find(lines: Lines, key: str) -> str | None:
    found: str | None = await lines.ask(GATEWAY, "find", key)
    return found


def key_with(fault: Fault | None, rate: float, seed: int = 1) -> str:
    """A key whose first call meets this fault."""
    return next(f"k{n}" for n in range(10_000) if Faults(rate, seed).draw(f"k{n}") is fault)


# --- faults and ledgers ---


def test_faults_are_the_same_for_a_seed_whatever_the_order_of_calls() -> None:
    keys = [f"k{n}" for n in range(200)]
    one, other = Faults(0.3, 7), Faults(0.3, 7)
    there = {key: one.draw(key) for key in keys}
    back = {key: other.draw(key) for key in reversed(keys)}
    assert there == back
    assert {key: Faults(0.3, 8).draw(key) for key in keys} != there


def test_faults_come_at_their_rate_and_of_every_kind() -> None:
    drawn = Counter(Faults(0.2, 1).draw(f"k{n}") for n in range(5000))
    assert set(drawn) == {None, *Fault}
    assert 0.17 < 1 - drawn[None] / 5000 < 0.23


def test_a_second_call_under_a_key_draws_anew() -> None:
    faults = Faults(0.5, 1)
    assert len({faults.draw("k") for _ in range(50)}) > 1


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        Faults(1.5, 1)


def test_a_ledger_is_read_back_and_never_loses_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    first = ledger.book("a", "g", {"amount": "1.10"})
    ledger.close()
    again = Ledger(path)
    assert again.find("a") == first
    assert again.find("b") is None
    again.book("a", "g", {"amount": "1.10"})
    again.close()
    assert [entry["key"] for entry in read_ledger(path)] == ["a", "a"]


# --- calls ---


@pytest.mark.process
def test_a_charge_is_booked_found_and_booked_again_without_dedupe(running: Running) -> None:
    running.start("--faults", "0")

    async def calls(lines: Lines) -> None:
        receipt = await book(lines, "a")
        assert await find(lines, "a") == receipt
        assert await find(lines, "b") is None
        await book(lines, "a")

    with_lines(calls)
    assert running.booked() == ["a", "a"]
    assert running.booked(WAREHOUSE) == []


@pytest.mark.process
def test_with_dedupe_a_key_is_booked_once(running: Running) -> None:
    running.start("--faults", "0", "--dedupe")

    async def calls(lines: Lines) -> None:
        assert await book(lines, "a") == await book(lines, "a")

    with_lines(calls)
    assert running.booked() == ["a"]


@pytest.mark.process
def test_a_refused_charge_is_not_booked(running: Running) -> None:
    running.start("--faults", "1")

    async def calls(lines: Lines) -> None:
        with pytest.raises(Unavailable, match="nothing was booked"):
            await book(lines, key_with(Fault.REFUSE, 1))

    with_lines(calls)
    assert running.booked() == []


@pytest.mark.process
def test_a_charge_whose_answer_never_comes_is_booked_and_found(running: Running) -> None:
    running.start("--faults", "1")
    key = key_with(Fault.SILENCE, 1)

    async def calls(lines: Lines) -> None:
        with pytest.raises(TimeoutError):
            await book(lines, key, timeout=0.2)
        assert await find(lines, key) is not None

    with_lines(calls)
    assert running.booked() == [key]


@pytest.mark.process
def test_nothing_is_booked_for_a_caller_that_has_hung_up(running: Running) -> None:
    """Else a lookup could say "not made" of a charge that is made later."""
    running.start("--faults", "0", "--latency", "0.3")

    async def calls(lines: Lines) -> None:
        with pytest.raises(TimeoutError):
            await book(lines, "a", timeout=0.1)
        assert await find(lines, "a") is None
        await book(lines, "b")  # takes as long again: the first one's time is over, too
        assert await find(lines, "a") is None

    with_lines(calls)
    assert running.booked() == ["b"]


@pytest.mark.process
def test_a_restart_of_the_services_leaves_the_call_unknown_and_the_ledger_whole(running: Running) -> None:
    running.start("--faults", "0")

    async def calls(lines: Lines) -> None:
        receipt = await book(lines, "a")
        assert running.stop() == 0
        running.start("--faults", "0")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await book(lines, "b")
        assert await find(lines, "a") == receipt

    with_lines(calls)


@pytest.mark.process
def test_services_left_by_a_kill_start_again(running: Running) -> None:
    running.start("--faults", "0")
    running.stop(signal.SIGKILL)
    running.start("--faults", "0")


def test_without_services_nothing_is_booked_and_it_says_what_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "none.sock"))
    with pytest.raises(Unavailable, match="nobody answers"):
        asyncio.run(book(Lines(), "a"))
    monkeypatch.delenv(ENVIRONMENT)
    with pytest.raises(Unavailable, match=r"rewindq\.tools\.demo\.services"):
        asyncio.run(book(Lines(), "a"))


@pytest.mark.process
def test_wrong_options_are_refused(tmp_path: Path) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rewindq.tools.demo.services", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert "0 to 1" in run("--dir", str(tmp_path), "--faults", "2").stderr
    long = run("--dir", str(tmp_path / ("x" * 120)))
    assert long.returncode == 2 and "too long" in long.stderr


def test_the_ledger_holds_amounts_as_text(tmp_path: Path) -> None:
    path = tmp_path / "gateway.jsonl"
    ledger = Ledger(path)
    ledger.book("a", "g", {"amount": str(Decimal("0.10"))})
    ledger.close()
    assert json.loads(path.read_text())["amount"] == "0.10"
