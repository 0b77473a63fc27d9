"""Is there anything left to take in?"""

from __future__ import annotations

from collections.abc import Mapping

from rewindq.engine.ports.log import Log, TopicPartition


def all_read(log: Log, positions: Mapping[TopicPartition, int]) -> bool:
    """Whether no readable record stands at or behind these offsets; transaction markers do not count."""
    behind = {place: offset for place, offset in positions.items() if offset < log.bounds(*place)[1]}
    if not behind:
        return True
    ends = {place: log.bounds(*place)[1] for place in behind}
    reader = log.reader(behind)
    try:
        while any(reader.position(*place) < end for place, end in ends.items()):
            if reader.poll(1, 1.0):
                return False
    finally:
        reader.close()
    return True
