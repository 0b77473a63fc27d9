"""One member's place in a group: its row is renewed by a thread, its leases are rows with generations."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Iterable, Mapping

from ...ports.log import AppendRefused, Fenced, LogError, NoSuchTopic, Turn
from .. import assignment
from ..fetching import Mark
from ..membership import PEER_CHECK_S, Change, compare
from . import appending, groups, process
from .database import Database
from .topics import Topics


class SqliteSeat:
    """The coordinator's side of a member (see `membership.Seat`)."""

    def __init__(
        self, database: Database, topics: Topics, group: str, name: str, partitions: int, lease_ttl: float
    ) -> None:
        """Takes no lease yet: that is for `sync`. `lease_ttl` in seconds."""
        self.member_id = f"{name}-{uuid.uuid4().hex[:12]}"
        self._database = database
        self._topics = topics
        self._group = group
        self._name = name
        self._partitions = partitions
        self._ttl = lease_ttl
        self._process = process.this_process()
        self._grp = 0
        self._version: int | None = None  # of the group at the last sync; None asks for another one
        self._seen: Mark | None = None
        self._peers_seen = 0.0
        self._renewed_until = process.now() + lease_ttl
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew_for_ever, name=self.member_id, daemon=True)
        with database.write() as connection:
            self._grp = groups.ensure(connection, group)
            self._enter(connection)
        self._renewing.start()

    def stale(self, mark: Mark) -> bool:
        """Whether the group may have changed since the last `sync`, or a peer has died."""
        if self._version is None or self.expired():
            return True
        peers_due = process.now() - self._peers_seen >= PEER_CHECK_S
        if mark == self._seen and not peers_due:
            return False
        with self._database.read() as connection:
            row = connection.execute("SELECT version FROM groups WHERE id = ?", (self._grp,)).fetchone()
            peers = groups.peers(connection, self._grp) if peers_due else []
        self._seen = mark
        if peers_due:
            self._peers_seen = process.now()
        return row != (self._version,) or any(peer.is_dead() for peer in peers)

    def sync(self, owned: Mapping[int, int]) -> Change:
        """Removes dead peers, compares leases with `owned`, takes free ones up to this member's share."""
        self._version = None
        with self._database.write() as connection:
            self._grp = groups.ensure(connection, self._group)
            living = self._living(connection)
            query = "SELECT partition, owner, generation FROM leases WHERE grp = ?"
            leases = {row[0]: (row[1], row[2]) for row in connection.execute(query, (self._grp,))}
            held = {partition: lease[1] for partition, lease in leases.items() if lease[0] == self.member_id}
            owners = {partition: lease[0] for partition, lease in leases.items()}
            share = assignment.share(self.member_id, living, owners, self._partitions)
            taken = self._take(connection, share.wanted)
            query = "SELECT version FROM groups WHERE id = ?"
            version = connection.execute(query, (self._grp,)).fetchone()[0]
        self._version = version
        return compare(owned, held, share.surplus, taken)

    def expired(self) -> bool:
        """Whether the membership could not be renewed within its time."""
        return process.now() > self._renewed_until

    def release(self, partitions: Iterable[int]) -> None:
        """Gives leases back."""
        self._version = None
        with self._database.write() as connection:
            connection.executemany(
                "DELETE FROM leases WHERE grp = ? AND partition = ? AND owner = ?",
                [(self._grp, partition, self.member_id) for partition in partitions],
            )
            groups.touch(connection, self._grp)

    def commit(self, turn: Turn, generations: Mapping[int, int]) -> list[int]:
        """Checks the leases, appends and sets the offsets, in one transaction."""
        prepared = appending.prepare(turn.appends)
        with self._database.write(appending=True) as connection:
            self._check(connection, generations)
            offsets = appending.write(connection, self._topics, prepared)
            try:
                groups.set_offsets(connection, self._topics, self._grp, turn.offsets)
            except NoSuchTopic as error:
                raise AppendRefused(f"nothing was committed: {error}") from error
        return offsets

    def leave(self) -> None:
        """Ends the membership and gives all leases back."""
        self._ended.set()
        if self._renewing is not threading.current_thread():
            self._renewing.join()
        with self._database.write() as connection:
            groups.remove(connection, self._grp, self.member_id)

    def _living(self, connection: sqlite3.Connection) -> list[str]:
        """Members in join order, after removing the dead and renewing (or entering anew) this one."""
        peers = groups.peers(connection, self._grp)
        for peer in peers:
            if peer.member_id != self.member_id and peer.is_dead():
                groups.remove(connection, self._grp, peer.member_id)
        if not self._renew(connection):
            self._enter(connection)
        return [peer.member_id for peer in groups.peers(connection, self._grp)]

    def _take(self, connection: sqlite3.Connection, wanted: list[int]) -> dict[int, int]:
        if not wanted:
            return {}
        query = "UPDATE groups SET generation = generation + 1, version = version + 1 WHERE id = ? RETURNING generation"
        generation = connection.execute(query, (self._grp,)).fetchone()[0]
        connection.executemany(
            "INSERT INTO leases VALUES (?, ?, ?, ?)",
            [(self._grp, partition, self.member_id, generation) for partition in wanted],
        )
        return dict.fromkeys(wanted, generation)

    def _check(self, connection: sqlite3.Connection, generations: Mapping[int, int]) -> None:
        query = "SELECT partition, generation FROM leases WHERE grp = ? AND owner = ?"
        held = dict(connection.execute(query, (self._grp, self.member_id)))
        gone = sorted(p for p, generation in generations.items() if held.get(p) != generation)
        if gone:
            self._version = None
            raise Fenced(
                f"member {self.member_id} of group {self._group} no longer owns partitions {gone}: "
                "another member "
                "may have taken them; nothing was appended; poll to learn what is owned"
            )

    def _enter(self, connection: sqlite3.Connection) -> None:
        deadline = process.now() + self._ttl
        connection.execute(
            "INSERT INTO members(grp, member_id, name, pid, started, boot, namespace, deadline) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self._grp, self.member_id, self._name, *self._process, deadline),
        )
        groups.touch(connection, self._grp)
        self._renewed_until = deadline

    def _renew(self, connection: sqlite3.Connection) -> bool:
        """Whether the membership still stood, which is now renewed."""
        deadline = process.now() + self._ttl
        query = "UPDATE members SET deadline = ? WHERE member_id = ?"
        renewed = connection.execute(query, (deadline, self.member_id)).rowcount == 1
        if renewed:
            self._renewed_until = deadline
        return renewed

    def _renew_for_ever(self) -> None:
        """A failure here needs no report: `expired` makes the next poll sync, which raises what is wrong."""
        while not self._ended.wait(self._ttl / 3):
            try:
                with self._database.write() as connection:
                    renewed = self._renew(connection)
            except LogError:
                continue
            if not renewed:
                self._version = None
                self._database.bell.ring()
