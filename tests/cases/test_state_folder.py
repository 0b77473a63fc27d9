"""A state folder that a worker must not use is refused by name and left as it was; one that may be used loses nothing.

The guards: `runtime/deployment.py` (`check_state_folder`: no network disk), `store/identity.py` and `store/opener.py`
(formats, whose folder it is), `runtime/recover.py` (`check_positions`: the log that a store belongs to, its state's
format), `processors/worker/takeover.py` (what is set aside and rebuilt, what is left to a person). Neighbours: a second
opener is refused and the first named in `tests/contract/store/test_processes.py`; what a killed owner leaves behind in
`tests/cases/test_store_hand_over.py`; the log's own file in `tests/embedded/test_files.py`.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.support.payments import wait_until
from tests.support.slow_app import calls
from tests.support.workers import Running, event_counts, submit_work

from rewindq.engine.ports.store import Family, Put
from rewindq.engine.runtime import deployment as deployment_module
from rewindq.engine.runtime.client import Client
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings, SettingsError, load_settings
from rewindq.engine.runtime.verify import verify
from rewindq.engine.store.newest import POSITIONS, Positions, encode_positions, read_positions
from rewindq.engine.store.opener import open_store
from rewindq.processors.worker.daemon import DaemonOptions, run_worker
from rewindq.processors.worker.report import WorkerOptions

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
APP = "tests.support.slow_app:app"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two partitions with eight jobs done."""
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    settings = load_settings(log=f"sqlite:///{tmp_path}/log.db", state_dir=tmp_path / "state", partitions=2)
    submit_work(settings, [0.0] * 8)
    work(settings)
    return settings


def work(settings: Settings) -> None:
    """A worker in a process of its own, until all is done."""
    worker = Running(settings, settings.state_dir.parent / "ledger", "--until-idle")
    try:
        worker.end()
    finally:
        worker.kill()
    assert worker.process.returncode == 0, worker.told


def refused(settings: Settings) -> str:
    """What a worker tells that does not start its work."""
    worker = Running(settings, settings.state_dir.parent / "ledger", "--until-idle")
    try:
        ended = worker.end()
    finally:
        worker.kill()
    assert worker.process.returncode == 1, worker.told
    # What stops one partition is told in the summary; what ends the worker, as its error.
    return str(ended["error"]["message"]) if "error" in ended else " ".join(ended["stopped"])


def content(folder: Path) -> dict[str, bytes]:
    """All files but locks, RocksDB's own text logs and notes of who has it open."""
    passing = ("LOCK", "LOG", "owner", "lock", ".lock")
    files = [found for found in sorted(folder.rglob("*")) if found.is_file() and not found.name.startswith(passing)]
    return {str(found.relative_to(folder)): found.read_bytes() for found in files}


def healthy(settings: Settings, jobs: int) -> None:
    """The log is whole, stores equal their rebuild, and each job was done once."""
    with Deployment.open(settings) as deployment:
        checked = verify(deployment)
    assert checked["ok"], checked["violations"]
    assert checked["digest"] == checked["rebuilt_digest"] is not None
    assert event_counts(settings)["JobSucceeded"] == jobs
    assert len(calls(settings.state_dir.parent / "ledger")) == jobs


def folder_of(settings: Settings, partition: int = 0) -> Path:
    """Where a partition's generations are."""
    return Path(settings.state_dir) / settings.namespace / "main" / f"p{partition}"


def set_positions(settings: Settings, **fields: object) -> None:
    """Changes what partition 0's store says of itself."""
    with closing(open_store(str(folder_of(settings) / "g1"), branch="", partition=0)) as store:
        positions = read_positions(store)
        assert isinstance(positions, Positions)
        changed = msgspec.structs.replace(positions, **fields)
        store.write([Put(Family.META, POSITIONS, encode_positions(changed))])


def test_a_network_disk_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_module, "file_system", lambda path: "nfs4" if path.name == "shared" else "ext4")
    settings = load_settings(log=f"sqlite:///{tmp_path}/log.db", state_dir=tmp_path / "shared", partitions=2)
    with pytest.raises(SettingsError, match=r"shared lies on a network file system \(nfs4\).*--state-dir"):
        run_worker(settings, DaemonOptions(APP, WorkerOptions(), until_idle=True))
    assert not (tmp_path / "shared").exists()


def test_a_store_of_a_newer_format_is_left_untouched(place: Settings) -> None:
    identity = folder_of(place) / "g1" / "identity.json"
    identity.write_text(json.dumps(json.loads(identity.read_text()) | {"format": 99}))
    before = content(folder_of(place))
    told = refused(place)
    assert str(folder_of(place)) in told and "format 99" in told and "use the newer version" in told
    assert content(folder_of(place)) == before


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"log_identity": "another"}, "made from log another"),
        ({"state_format": 99}, "state format 99"),
        ({"offsets": {"rewindq.lifecycle": 10_000, "rewindq.domain": 0}}, "up to offset 10000"),
    ],
)
def test_a_store_that_does_not_belong_to_the_log_is_left_to_a_person(
    place: Settings, fields: dict[str, object], named: str
) -> None:
    set_positions(place, **fields)
    told = refused(place)
    assert named in told and str(folder_of(place) / "g1") in told and "move" in told
    assert [found.name for found in folder_of(place).iterdir()] == ["g1"]
    (folder_of(place) / "g1").rename(place.state_dir.parent / "moved")
    work(place)
    healthy(place, 8)


def test_a_store_of_an_older_state_format_is_kept_and_rebuilt(place: Settings) -> None:
    set_positions(place, state_format=0)
    with capture_logs() as told:
        run_worker(place, DaemonOptions(APP, WorkerOptions(), until_idle=True))
    (line,) = [line for line in told if line["event"] == "store set aside"]
    assert "state format 0" in line["reason"] and Path(line["kept"]).is_dir()
    healthy(place, 8)


def test_a_copy_taken_while_its_owner_works_goes_on_from_the_log(place: Settings) -> None:
    submit = [0.02] * 30
    owner = Running(place, place.state_dir.parent / "ledger", "--concurrency", "1")
    try:
        owner.await_line("partition taken")
        submit_more(place, submit)
        wait_until(lambda: event_counts(place)["JobSucceeded"] >= 12, "some are done")
        copied = place.model_copy(update={"state_dir": place.state_dir.parent / "copied"})
        shutil.copytree(place.state_dir, copied.state_dir, ignore=shutil.ignore_patterns("*.tmp"))
        wait_until(lambda: event_counts(place)["JobSucceeded"] == 38, "all are done")
        owner.stop()
    finally:
        owner.kill()
    for settings in (copied, place):
        work(settings)
        healthy(settings, 38)


def submit_more(settings: Settings, seconds: list[float]) -> None:
    """Jobs with numbers and ids of their own."""
    with Client(log=settings.log, namespace=settings.namespace) as client:
        for number, duration in enumerate(seconds, 100):
            client.submit("work", {"number": number, "seconds": duration}, job_id=f"more-{number}")


def test_a_folder_that_cannot_be_written_is_named(place: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    told = refused(place.model_copy(update={"state_dir": tmp_path / "file" / "state"}))
    assert str(tmp_path / "file" / "state") in told and "permissions" in told
