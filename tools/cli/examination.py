"""What `rewindq doctor` looks at. Each check says what it found, and what to do where it is not well."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from rewindq.engine.core.times import format_time
from rewindq.engine.log.disks import NETWORK, file_system
from rewindq.engine.log.sqlite import holder, journal
from rewindq.engine.ports.log import LogError
from rewindq.engine.runtime.app import AppError, load_app
from rewindq.engine.runtime.deployment import Deployment, NotCreated
from rewindq.engine.runtime.keeping import look_at_keeping
from rewindq.engine.runtime.pending import read_from
from rewindq.engine.runtime.settings import Settings
from rewindq.engine.runtime.show import time_shown

from .errors import FAILED, NO_SUCH_THING

#: Below this much free disk a worker may soon have to stop.
FREE_BYTES_MIN = 1 << 30
#: A clock that is behind the newest record by more than this is wrong, here or where the record was written.
CLOCK_BEHIND_US = 2_000_000
#: A commit holds the log's write lock for milliseconds.
WRITE_LOCK_S = 3.0


class Check(NamedTuple):
    """One thing that was looked at; `code` is the exit code that it asks for when it is not well."""

    name: str
    ok: bool
    detail: str
    code: int = FAILED


def examine(settings: Settings) -> list[Check]:
    """All checks that apply, in order; what needs the log is left out when it cannot be reached."""
    checks = []
    try:
        with Deployment.open(settings, create=False) as deployment:
            checks.append(Check("log", True, f"{deployment.log.url} answers; identity {deployment.log.identity()}"))
            checks += _of_log(deployment)
    except LogError as error:
        checks.append(Check("log", False, str(error)))
    except NotCreated as error:
        checks.append(Check("log", False, str(error), NO_SUCH_THING))
        if settings.log_file is not None:
            checks.append(_folder("disk of the log", settings.log_file.parent, "--log"))
    checks += _of_folders(settings)
    if settings.app is not None:
        checks.append(_app(settings.app))
    checks.append(_java())
    return checks


def _of_log(deployment: Deployment) -> Iterator[Check]:
    yield _topics(deployment)
    if deployment.settings.log.startswith("sqlite:"):
        yield from _embedded(deployment)
    elif deployment.settings.log.startswith("kafka:"):
        from .examination_kafka import broker_checks

        yield from (Check(*found) for found in broker_checks(deployment))
    yield _clock(deployment)
    yield _keeping(deployment)


def _topics(deployment: Deployment) -> Check:
    names = deployment.topics
    wanted = [names.jobs, names.commands, names.lifecycle, names.domain, names.investigation, names.snapshots]
    found = deployment.log.topics(f"{deployment.settings.namespace}.")
    present = [name for name in wanted if name in found]
    if not present:
        return Check("topics", True, "none yet: the first submit or worker creates them")
    missing = [name for name in wanted if name not in found]
    counts = {name: found[name] for name in present}
    if missing:
        return Check("topics", False, f"missing {', '.join(missing)}: start a worker, it creates what is missing")
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        return Check("topics", False, f"partition counts differ ({told}): use another --namespace")
    return Check("topics", True, f"{len(present)} topics of {counts[names.jobs]} partitions")


def _embedded(deployment: Deployment) -> Iterator[Check]:
    path = Path(deployment.log.url.removeprefix("sqlite:///").partition("?")[0])
    kind = file_system(path)
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    # `synchronous` belongs to a connection; the log sets FULL on each of its own.
    told = f"journal mode {mode}, synchronous=FULL, on {kind or 'an unknown file system'}"
    yield Check("durability", mode == "wal", told if mode == "wal" else f"{told}: something changed it; it must be wal")
    yield _write_lock(path)
    yield Check("journal", journal.size_of(path) <= journal.LIMIT, journal.describe(path))
    yield _free("disk of the log", path.parent)


def _write_lock(path: Path) -> Check:
    """Whether a writer gets its turn; one that was frozen in the middle of a commit stops all others."""
    with closing(sqlite3.connect(path, timeout=WRITE_LOCK_S, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            who = holder.find(path)
            told = str(error) if who is None else f"held by {who}"
            return Check("write lock", False, f"not to be had within {WRITE_LOCK_S:g} s: {told}")
    return Check("write lock", True, "a writer gets its turn")


def _clock(deployment: Deployment) -> Check:
    """The wall clock against the newest record of all partitions."""
    known = deployment.log.topics(deployment.topics.lifecycle).get(deployment.topics.lifecycle, 0)
    newest = 0
    for partition in range(known):
        low, end = deployment.log.bounds(deployment.topics.lifecycle, partition)
        start = max(low, end - 2)
        for record in read_from(deployment, deployment.topics.lifecycle, partition, start):
            newest = max(newest, record.timestamp_ms * 1000)
    now = deployment.clock.now_us()
    if newest - now > CLOCK_BEHIND_US:
        return Check(
            "clock",
            False,
            f"{format_time(now)} here, but the newest record is of {time_shown(newest)}: set the clock by NTP",
        )
    told = f", newest record {(now - newest) / 1e6:.0f} s ago" if newest else ""
    return Check("clock", True, f"{format_time(now)}{told}")


def _keeping(deployment: Deployment) -> Check:
    """What becomes of the answers under effects' keys. Topics that are not there yet are judged at a worker's start."""
    if deployment.topics.jobs not in deployment.log.topics(deployment.topics.jobs):
        return Check("effects' keys", True, "no topics yet")
    found = look_at_keeping(deployment)
    return Check("effects' keys", found.ok is not False, found.told)


def _of_folders(settings: Settings) -> Iterator[Check]:
    yield _folder("state folder", Path(settings.state_dir), "--state-dir")
    if settings.blobs_folder is None:
        yield Check("blob folder", True, "none: bodies over the limit are refused; set --blobs for larger ones")
    else:
        yield _folder("blob folder", settings.blobs_folder, "--blobs", local=False)


def _folder(name: str, folder: Path, option: str, *, local: bool = True) -> Check:
    there = _existing(folder)
    kind = file_system(there)
    if local and kind in NETWORK:
        return Check(name, False, f"{folder} is on a network file system ({kind}): name a local disk with {option}")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Check(name, False, f"{there} cannot be written: {error}: change its permissions or {option}")
    free = _free(name, there)
    return Check(name, free.ok, f"{folder.absolute()} is writable ({kind or 'unknown file system'}); {free.detail}")


def _free(name: str, folder: Path) -> Check:
    free = shutil.disk_usage(_existing(folder)).free
    enough = free >= FREE_BYTES_MIN
    more = "" if enough else ", under 1 GiB: make room, a full disk stops workers"
    return Check(name, enough, f"{free / (1 << 30):.1f} GiB free{more}")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: there it would be made."""
    there = folder.absolute()
    while not there.is_dir():
        there = there.parent
    return there


def _app(place: str) -> Check:
    try:
        loaded = load_app(place)
    except AppError as error:
        return Check("app", False, str(error))
    types = ", ".join(sorted(loaded.app.types)) or "none: decorate a handler with @app.job()"
    return Check("app", bool(loaded.app.types), f"{place} (code {loaded.code_version}) has job types {types}")


def _java() -> Check:
    """Only for `rewindq kafka`; never a failure."""
    found: list[str] = []
    for program, arguments in (("java", ("-version",)), ("mvn", ("--version",))):
        if shutil.which(program) is None:
            found.append(f"no {program}")
            continue
        done = _output([program, *arguments])
        found.append(done or f"{program} does not run")
    return Check("java", True, f"{'; '.join(found)} (needed by `rewindq kafka` alone)")


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, env=os.environ)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = Text.from_ansi((done.stdout or done.stderr).strip()).plain
    return text.splitlines()[0] if text else ""
