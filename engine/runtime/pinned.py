"""The partition count that a namespace was made with, kept in its log.

Keys are at home on a partition by this count. Where somebody adds partitions to the topics, what is known under a key
would stand on one partition, and whoever asks for it would look on another one and find nothing.
"""

from __future__ import annotations

from contextlib import closing

from ..core.names import Topics
from ..ports.log import Append, Log, PartitionCountMismatch

#: The record's key on the compacted topic; its value is the count in digits.
_KEY = b"partitions"


def pinned(log: Log, topics: Topics) -> int | None:
    """The count, None where none was kept yet."""
    if topics.snapshots not in log.topics(topics.snapshots):
        return None
    place = (topics.snapshots, 0)
    low, end = log.bounds(*place)
    count = None
    with closing(log.reader({place: low})) as reader:
        while reader.position(*place) < end:
            for record in reader.poll(100, 1.0):
                if record.key == _KEY and record.value is not None and record.value.isdigit():
                    count = int(record.value)
    return count


def pin(log: Log, topics: Topics, count: int, now_us: int) -> None:
    """Keeps the count. Raises AppendRefused, OutcomeUnknown."""
    with closing(log.producer()) as producer:
        producer.append([Append(topics.snapshots, 0, _KEY, str(count).encode(), now_us // 1000)])


def check(topics: Topics, count: int, made_with: int | None) -> None:
    """Raises PartitionCountMismatch when the topics have another count by now."""
    if made_with is not None and made_with != count:
        raise PartitionCountMismatch(
            f"namespace {topics.namespace!r} was made with {made_with} partitions, and topic {topics.jobs} has {count} "
            "now: keys would be looked for where they are not at home. Nothing was done; make a new namespace with "
            f"the new count, or make the topics of this one anew with {made_with}"
        )
