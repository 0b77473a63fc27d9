"""Consumer groups in the file: members, leases, committed offsets."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...ports.log import Append, GroupState, TopicPartition
from .. import refusals
from . import appending
from .database import Database
from .process import ProcessId, is_gone, now
from .topics import Topics


class Peer(NamedTuple):
    """A member as its row says. `deadline` in seconds of `process.now`."""

    member_id: str
    process: ProcessId
    deadline: float

    def is_dead(self) -> bool:
        """Whether its process has ended, or has not renewed the membership in time."""
        return self.deadline < now() or is_gone(self.process)


def peers(connection: sqlite3.Connection, grp: int) -> list[Peer]:
    """The members of a group in join order, dead ones included."""
    query = "SELECT member_id, pid, started, boot, namespace, deadline FROM members WHERE grp = ? ORDER BY seq"
    return [Peer(row[0], ProcessId(*row[1:5]), row[5]) for row in connection.execute(query, (grp,))]


def ensure(connection: sqlite3.Connection, name: str) -> int:
    """The group's number; makes the group."""
    connection.execute(
        "INSERT INTO groups(name, version, generation) VALUES (?, 0, 0) ON CONFLICT(name) DO NOTHING", (name,)
    )
    return int(connection.execute("SELECT id FROM groups WHERE name = ?", (name,)).fetchone()[0])


def remove(connection: sqlite3.Connection, grp: int, member_id: str) -> None:
    """Ends a membership and frees its leases; members look again because the version changes."""
    connection.execute("DELETE FROM leases WHERE grp = ? AND owner = ?", (grp, member_id))
    connection.execute("DELETE FROM members WHERE member_id = ?", (member_id,))
    touch(connection, grp)


def touch(connection: sqlite3.Connection, grp: int) -> None:
    """Says that members or leases changed."""
    connection.execute("UPDATE groups SET version = version + 1 WHERE id = ?", (grp,))


def set_offsets(
    connection: sqlite3.Connection, topics: Topics, grp: int, offsets: Mapping[TopicPartition, int]
) -> None:
    """Writes committed offsets. Raises NoSuchTopic."""
    rows = [(grp, topics.present(connection, *key), offset) for key, offset in offsets.items()]
    connection.executemany(
        "INSERT INTO group_offsets VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset",
        rows,
    )


def _committed(connection: sqlite3.Connection, grp: int) -> dict[TopicPartition, int]:
    query = (
        "SELECT name, partition, next_offset FROM group_offsets NATURAL JOIN partitions "
        "JOIN topics ON topic = id WHERE grp = ? ORDER BY name, partition"
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(query, (grp,))}


class Groups:
    """What an operator does with groups."""

    def __init__(self, database: Database, topics: Topics) -> None:
        self._database = database
        self._topics = topics

    def states(self, prefix: str) -> list[GroupState]:
        """Groups whose name begins with `prefix`, with their living members."""
        states = []
        with self._database.read() as connection:
            query = "SELECT id, name FROM groups WHERE substr(name, 1, ?) = ? ORDER BY name"
            for grp, name in connection.execute(query, (len(prefix), prefix)).fetchall():
                offsets = _committed(connection, grp)
                members = tuple(peer.member_id for peer in peers(connection, grp) if not peer.is_dead())
                states.append(GroupState(name, members, offsets))
        return states

    def set_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        expected: Mapping[TopicPartition, int | None] | None,
        appends: Sequence[Append],
    ) -> None:
        """Sets committed offsets of a group without members, and appends. As the port's, and raises NoSuchTopic."""
        prepared = appending.prepare(appends)
        with self._database.write(appending=bool(appends)) as connection:
            grp = ensure(connection, group)
            self._expect_idle(connection, group, grp)
            refusals.check_expected(group, _committed(connection, grp), expected)
            for key in offsets:
                self._topics.forget(*key)  # the topic may have been made anew
            appending.write(connection, self._topics, prepared)
            set_offsets(connection, self._topics, grp, offsets)

    def delete(self, group: str) -> None:
        """Deletes a group without members. Raises GroupActive."""
        with self._database.write() as connection:
            row = connection.execute("SELECT id FROM groups WHERE name = ?", (group,)).fetchone()
            if row is None:
                return
            self._expect_idle(connection, group, row[0])
            connection.execute("DELETE FROM group_offsets WHERE grp = ?", row)
            connection.execute("DELETE FROM groups WHERE id = ?", row)

    @staticmethod
    def _expect_idle(connection: sqlite3.Connection, group: str, grp: int) -> None:
        living = []
        for peer in peers(connection, grp):
            if peer.is_dead():
                remove(connection, grp, peer.member_id)
            else:
                living.append(peer.member_id)
        if living:
            raise refusals.active(group, living)
