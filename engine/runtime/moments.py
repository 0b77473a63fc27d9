"""Where in a partition's events a moment lies."""

from __future__ import annotations

from ..core.events import UNNUMBERED
from .deployment import Deployment
from .pending import read_from
from .recover import PartitionTopics

#: Records looked at before a time: timestamps of one owner grow, those of two machines may cross by a little.
_BEFORE_MS = 1000


def event_before(deployment: Deployment, topics: PartitionTopics, moment: int, next_seq: int) -> int:
    """The last event before the first one that is later than `moment` (microseconds); -1 when there is none.

    `next_seq` is the number behind the partition's last event.
    """
    firsts = [_first_later(deployment, topic, topics.partition, moment) for topic in (topics.lifecycle, topics.domain)]
    return min((seq for seq in firsts if seq is not None), default=next_seq) - 1


def _first_later(deployment: Deployment, topic: str, partition: int, moment: int) -> int | None:
    low, _ = deployment.log.bounds(topic, partition)
    start = max(low, deployment.log.offset_at(topic, partition, moment // 1000 - _BEFORE_MS))
    for record in read_from(deployment, topic, partition, start):
        decoded = deployment.codec.decode(record.value)
        if decoded.seq != UNNUMBERED and decoded.timestamp > moment:
            return decoded.seq
    return None
