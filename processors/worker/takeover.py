"""Taking a partition over: open its store, fold the log's tail, fence older writers, and be the one that won.

1. Open the store. Another process may still be closing it: wait, bounded, and then go on in a copy, since its owner may
   be frozen. A store that is damaged, or of another log, is set aside. See `engine/store/generations.py`.
2. Fold the log to its end, so that the newest epoch is known.
3. Append a fence with the next epoch, which tells where the inputs go on, to both event topics.
4. Fold up to and past the fences. Whoever's fence came first in both topics owns the epoch; who lost tries again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from rewindq.engine.core import events as e
from rewindq.engine.ports.log import Fenced, Turn
from rewindq.engine.ports.store import Store, StoreInUse
from rewindq.engine.runtime.app import LoadedApp
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.quarantines import queued_commands
from rewindq.engine.runtime.recover import PartitionTopics, StoreAhead, StoreStale, Tail
from rewindq.engine.store import generations

from .inputs import inputs_of
from .owner import Owner, fence
from .trial import STALLED_MAX, find_killers, stalled

log = structlog.get_logger(__name__)
#: How long a store that another process may be closing is waited for, in seconds.
STORE_WAIT = 3.0
FENCE_TRIES = 5


class Taken(NamedTuple):
    """A partition that is owned and caught up: its owner, and where its inputs go on.

    `quarantines` stand further on among its inputs, and hold before anything is started.
    """

    owner: Owner
    inputs: dict[str, int]
    events: int
    quarantines: list[e.QuarantineCommand | e.LiftCommand]


def take_over(
    deployment: Deployment,
    commit: Callable[[Turn], list[int]],
    partition: int,
    *,
    worker_id: str,
    loaded: LoadedApp,
    pause: Callable[[float], object],
) -> Taken:
    """Takes an assigned partition over. `pause(seconds)` waits between tries of a busy store.

    Raises Fenced when the partition has passed on meanwhile; InputLost, StoreAhead, GapInLog, LogDamaged or
    OffsetOutOfRange when a person has to act.
    """
    topics = deployment.topics
    store, tail, events = _open_and_fold(deployment, partition, pause)
    try:
        inputs = inputs_of(deployment, partition, tail.merge.epoch)
        taken = _taken(deployment, partition, tail, inputs)
        for _ in range(FENCE_TRIES):
            epoch = tail.merge.epoch + 1
            _append_fences(deployment, commit, partition, epoch, worker_id, taken, inputs)
            events += tail.catch_up()
            won = [tail.merge.fences[topic] for topic in (topics.lifecycle, topics.domain)]
            if all(f.epoch == epoch and f.worker_id == worker_id for f in won):
                break
        else:
            raise Fenced(f"partition {partition}: another worker took every epoch in {FENCE_TRIES} tries")
        quarantines = [queued.body for queued in queued_commands(deployment, partition, inputs[topics.commands])]
        suspect = taken.stalled >= STALLED_MAX
        killers = find_killers(deployment, loaded.place, partition, inputs[topics.jobs]) if suspect else {}
    except BaseException:
        store.close()
        raise
    generations.clean(deployment.partition_folder(partition))
    for item in tail.stale:
        log.warning("stale record ignored", topic=item.topic, offset=item.offset, reason=item.stale)
    owner = Owner(
        partition,
        topics,
        store,
        tail.states,
        tail.positions,
        epoch=epoch,
        worker_id=worker_id,
        code_version=loaded.code_version,
        codec=deployment.codec,
        clock=deployment.clock,
    )
    owner.inputs, owner.killers = dict(inputs), killers
    return Taken(owner, inputs, events, quarantines)


def _taken(deployment: Deployment, partition: int, tail: Tail, inputs: Mapping[str, int]) -> e.PartitionTaken:
    offset = inputs[deployment.topics.jobs]
    last = tail.merge.fences[deployment.topics.lifecycle]
    return e.PartitionTaken(socket.gethostname(), os.getpid(), offset, stalled(deployment, partition, last, offset))


def _open(deployment: Deployment, partition: int, pause: Callable[[float], object]) -> Store:
    folder = deployment.partition_folder(partition)
    waited = 0.0
    while True:
        try:
            return generations.open_current(folder, branch="", partition=partition)
        except StoreInUse as error:
            if waited >= STORE_WAIT:
                log.warning("its former owner keeps the store open; going on in a copy", reason=str(error))
                generations.succeed(folder)
                waited = 0.0
            pause(0.05)
            waited += 0.05


def _open_and_fold(deployment: Deployment, partition: int, pause: Callable[[float], object]) -> tuple[Store, Tail, int]:
    """The store, caught up with the log; the number of events that took. One that is stale is rebuilt."""
    while True:
        store = _open(deployment, partition, pause)
        place = generations.current(deployment.partition_folder(partition))
        try:
            return store, *_fold(deployment, partition, store)
        except StoreStale as error:
            store.close()
            generations.begin_anew(place, f"{error}: it is rebuilt from the log", branch="", partition=partition)
        except StoreAhead as error:
            store.close()
            raise StoreAhead(
                f"{error}. Store {place} was left as it is: name the state folder that belongs to this log "
                f"(--state-dir), or, if the log is the right one, move {place} away; it is rebuilt from the log"
            ) from error
        except BaseException:
            store.close()
            raise


def _fold(deployment: Deployment, partition: int, store: Store) -> tuple[Tail, int]:
    source = PartitionTopics(deployment.topics.lifecycle, deployment.topics.domain, partition)
    tail = Tail(deployment.log, deployment.codec, source, store)
    return tail, tail.catch_up()


def _append_fences(
    deployment: Deployment,
    commit: Callable[[Turn], list[int]],
    partition: int,
    epoch: int,
    worker_id: str,
    taken: e.PartitionTaken,
    inputs: Mapping[str, int],
) -> None:
    """Commits the fences, and with them where the inputs go on: whoever owned a partition has committed offsets."""
    topics = deployment.topics
    appends = [
        fence(topic, partition, epoch, worker_id, taken, deployment.clock, deployment.codec)
        for topic in (topics.lifecycle, topics.domain)
    ]
    commit(Turn(appends, {(topic, partition): offset for topic, offset in inputs.items()}, frozenset({partition})))
