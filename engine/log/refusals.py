"""What the local logs refuse, and how they word it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ports.log import (
    Append,
    AppendRefused,
    GroupActive,
    NoSuchTopic,
    OffsetOutOfRange,
    OffsetsMoved,
    PartitionCountMismatch,
    TopicPartition,
    TopicSpec,
)

# Larger bodies belong into the blob store; a batch must also stay far below SQLite's limit of 1 GB.
RECORD_BYTES_MAX = 32 * 1024 * 1024


def no_such(topic: str, partition: int | None = None) -> NoSuchTopic:
    """For an unknown topic or partition."""
    name = topic if partition is None else f"{topic}/{partition}"
    return NoSuchTopic(f"there is no topic or partition {name}: create it, or check the name and namespace")


def out_of_range(topic: str, partition: int, offset: int, low: int, end: int) -> OffsetOutOfRange:
    """For a position outside of what is kept."""
    return OffsetOutOfRange(
        f"{topic}/{partition}: offset {offset} was asked for, but the log has {low} to {end}: "
        "restore from a snapshot in that range, or choose another position",
        partition,
    )


def active(group: str, members: Sequence[str]) -> GroupActive:
    """For a change to a group that is running."""
    return GroupActive(f"group {group} has running members ({', '.join(members)}): stop them, then try again")


def check_expected(
    group: str, committed: Mapping[TopicPartition, int], expected: Mapping[TopicPartition, int | None] | None
) -> None:
    """Raises OffsetsMoved where the committed offsets are others than expected."""
    moved = [
        f"{topic}/{partition} {committed.get((topic, partition))} instead of {offset}"
        for (topic, partition), offset in (expected or {}).items()
        if committed.get((topic, partition)) != offset
    ]
    if moved:
        raise OffsetsMoved(
            f"the offsets of group {group} were set by somebody else meanwhile ({', '.join(moved)}): "
            "nothing was done; look at them, then choose again"
        )


def check_size(record: Append) -> None:
    """Raises AppendRefused for a record that is too large; its size is that of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name.encode()) + len(value) for name, value in record.headers)
    if size > RECORD_BYTES_MAX:
        raise AppendRefused(
            f"a record of {size} bytes for {record.topic}/{record.partition} exceeds {RECORD_BYTES_MAX} "
            "bytes: "
            "nothing was appended; put its body into the blob store"
        )


def missing_topics(specs: Sequence[TopicSpec], present: Mapping[str, int]) -> list[TopicSpec]:
    """The specs to be created. Raises PartitionCountMismatch, and ValueError for one without sense."""
    for spec in specs:
        if not spec.name or spec.partitions < 1:
            raise ValueError(f"topic {spec.name!r} with {spec.partitions} partitions: give a name and at least 1")
        count = present.get(spec.name, spec.partitions)
        if count != spec.partitions:
            raise PartitionCountMismatch(
                f"topic {spec.name} has {count} partitions, {spec.partitions} were asked for: "
                f"use {count}, or another namespace"
            )
    return [spec for spec in specs if spec.name not in present]


def input_partitions(counts: Mapping[str, int], inputs: Sequence[str]) -> int:
    """The partition count of a group's inputs. Raises NoSuchTopic, and PartitionCountMismatch between them."""
    for topic in inputs:
        if topic not in counts:
            raise no_such(topic)
        if counts[topic] != counts[inputs[0]]:
            raise PartitionCountMismatch(
                f"topic {topic} has {counts[topic]} partitions and {inputs[0]} has {counts[inputs[0]]}: "
                "the inputs of one group need the same number"
            )
    return counts[inputs[0]]
