"""Stored events of every released version are read as they were meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.golden import make
from tests.support.records import rendered

from rewindq.engine.codec.avro import Codec
from rewindq.engine.core.events import BODIES
from rewindq.schemas import catalog

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(GOLDEN.glob("v*/*.bin"))
CURRENT = GOLDEN / f"v{catalog.current_release()}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_record_decodes_to_its_json(path: Path) -> None:
    record = Codec().decode(path.read_bytes())

    assert rendered(record) == json.loads(path.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("path", sorted(CURRENT.glob("*.bin")), ids=lambda path: path.stem)
def test_a_golden_record_of_the_current_release_is_written_in_the_same_bytes(path: Path) -> None:
    codec = Codec()
    data = path.read_bytes()

    assert codec.encode(codec.decode(data)) == data


def test_every_event_type_has_a_golden_record() -> None:
    assert {path.stem for path in CURRENT.glob("*.bin")} >= {*BODIES, "envelope", "minimal"}


def test_every_release_has_golden_records_under_its_fingerprint() -> None:
    for release in catalog.releases():
        found = {path.read_bytes()[2:10] for path in (GOLDEN / f"v{release}").glob("*.bin")}
        assert found == {catalog.fingerprint(release)}, f"schemas of release {release} changed after its golden records"


def test_the_maker_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "HERE", tmp_path)
    make.main()
    written = tmp_path / CURRENT.name / "minimal.bin"
    written.write_bytes(b"released")
    make.main()

    assert written.read_bytes() == b"released"
    assert len(list((tmp_path / CURRENT.name).glob("*.bin"))) == len(BODIES) + 2
