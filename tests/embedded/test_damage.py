"""A damaged or shortened file is refused by name, and never read as if it were whole."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.logs import read_all, record

from rewindq.engine.log.sqlite import SqliteLog, schema
from rewindq.engine.ports.log import LogDamaged, LogError, TopicSpec

APPENDS = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Eight batches of ten records, all in the main file."""
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    log.create_topics([TopicSpec("jobs", 2)])
    producer = log.producer()
    source = random.Random(7)  # noise, so that most of the file is records
    for number in range(APPENDS):
        values = [source.randbytes(600) for _ in range(10)]
        producer.append([record("jobs", 1, value, at=number) for value in values])
    log.close()
    return path


def _tamper(path: Path, statement: str, *parameters: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute(statement, parameters).rowcount > 0
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _ids(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    ids = [row[0] for row in connection.execute("SELECT id FROM batches ORDER BY id")]
    connection.close()
    return ids


def _read(path: Path) -> int:
    log = SqliteLog(path)
    try:
        return len(read_all(log, "jobs", 1))
    finally:
        log.close()


def test_the_untouched_file_is_read(path: Path) -> None:
    assert _read(path) == APPENDS * 10


def _flip_data(path: Path) -> None:
    (data,) = sqlite3.connect(path).execute("SELECT data FROM batches WHERE id = ?", (_ids(path)[3],)).fetchone()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    _tamper(path, "UPDATE batches SET data = ? WHERE id = ?", flipped, _ids(path)[3])


def _delete_one(path: Path) -> None:
    _tamper(path, "DELETE FROM batches WHERE id = ?", _ids(path)[3])


def _change_time(path: Path) -> None:
    _tamper(path, "UPDATE batches SET min_ts = min_ts - 1 WHERE id = ?", _ids(path)[3])


def _swap(path: Path) -> None:
    rows = "SELECT data FROM batches WHERE id = ?"
    (other,) = sqlite3.connect(path).execute(rows, (_ids(path)[4],)).fetchone()
    _tamper(path, "UPDATE batches SET data = ? WHERE id = ?", other, _ids(path)[3])


def _change_type(path: Path) -> None:
    _tamper(path, "UPDATE batches SET count = 'x' WHERE id = ?", _ids(path)[3])


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (_flip_data, "checksum"),
        (_delete_one, "missing"),
        (_change_time, "checksum"),
        (_swap, "checksum"),
        (_change_type, "understood"),
    ],
)
def test_harm_in_the_middle_is_named_with_its_place(path: Path, harm: Callable[[Path], None], what: str) -> None:
    harm(path)
    log = SqliteLog(path)
    reader = log.reader({("jobs", 1): 0})
    before = []
    with pytest.raises(LogDamaged, match=rf"jobs/1 offset 30: .*{what}") as caught:
        for _ in range(10):
            before += reader.poll()
    assert str(path) in str(caught.value)
    assert [one.offset for one in before] == list(range(30))  # what lies before it is still good
    reader = log.reader({("jobs", 1): 35})
    with pytest.raises(LogDamaged, match=r"jobs/1"):
        reader.poll()
    log.close()


def _delete_last(path: Path) -> None:
    _tamper(path, "DELETE FROM batches WHERE id >= ?", _ids(path)[6])


def _delete_all(path: Path) -> None:
    _tamper(path, "DELETE FROM batches")


def _shorten_head(path: Path) -> None:
    _tamper(path, "UPDATE partitions SET end_offset = 60 WHERE end_offset = 80")


def _change_head(path: Path) -> None:
    _tamper(path, "UPDATE partitions SET head_chain = x'00' WHERE end_offset = 80")


@pytest.mark.parametrize("harm", [_delete_last, _delete_all, _shorten_head, _change_head])
def test_a_shortened_log_is_not_opened(path: Path, harm: Callable[[Path], None]) -> None:
    harm(path)
    with pytest.raises(LogDamaged, match=r"jobs/1 offset \d+"):
        SqliteLog(path)


def test_rows_lost_while_it_is_open_are_noticed(path: Path) -> None:
    log = SqliteLog(path)
    reader, begun = log.reader({("jobs", 1): 60}), log.reader({("jobs", 1): 50})
    assert len(begun.poll(limit=10)) == 10
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM batches WHERE id >= ?", (_ids(path)[6],))
    connection.commit()
    connection.close()
    for one in (reader, begun):
        with pytest.raises(LogDamaged, match=r"jobs/1 offset 60"):
            one.poll()
    log.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95, 1.0])
def test_a_truncated_file_is_refused(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int((len(content) - 1) * share)])
    with pytest.raises(LogDamaged, match=str(path)):
        _read(path)
    if share == 0.0:
        assert path.read_bytes() == b""  # it was not filled with a new log


@pytest.mark.parametrize("cut", [1, 4096])
def test_a_file_shortened_where_nothing_lies_yet_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.db"
    SqliteLog(path).close()
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(LogDamaged, match=r"should have \d+ bytes"):
        SqliteLog(path)


def test_a_flipped_byte_anywhere_never_changes_what_is_read(path: Path) -> None:
    content = path.read_bytes()
    log = SqliteLog(path)
    whole = read_all(log, "jobs", 1)
    log.close()
    refused = 0
    for place in range(0, len(content), len(content) // 150):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            log = SqliteLog(path)
            try:
                assert read_all(log, "jobs", 1) == whole, place
            finally:
                log.close()
        except LogError:
            refused += 1
        for side in ("-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
    assert refused > 50  # every one that fell into a record


def test_a_log_whose_file_went_but_whose_wal_stayed_is_not_begun_anew(path: Path) -> None:
    wal = path.with_name(path.name + "-wal")
    path.unlink()
    wal.write_bytes(b"remains")
    with pytest.raises(LogDamaged, match=wal.name):
        SqliteLog(path)
    assert not path.exists()


def test_a_batch_of_another_partition_is_not_taken(path: Path) -> None:
    first = _ids(path)[0]
    other = schema.batch_id((first >> 42) - 1, 0)
    columns = "count, min_ts, top_ts, codec, chain, data"
    _tamper(path, f"INSERT INTO batches SELECT ?, {columns} FROM batches WHERE id = ?", other, first)
    head = "UPDATE partitions SET end_offset = 10, head_chain = (SELECT chain FROM batches WHERE id = ?) WHERE tp = ?"
    _tamper(path, head, first, (first >> 42) - 1)
    log = SqliteLog(path)
    with pytest.raises(LogDamaged, match="jobs/0 offset 0"):
        read_all(log, "jobs", 0)
    log.close()
