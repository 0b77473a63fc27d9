"""Setting a stopped group's offsets together with the records that tell of it, in one transaction.

Everybody who does this for a group uses the same transactional id: whoever comes second shuts the first one out or
finds its work done, so what is expected and what is set are one step.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer

from rewindq.engine.ports.log import Append, Fenced, OffsetsMoved, TopicPartition

from .delivery import check
from .errors import tp
from .groups import Groups
from .member import raw_metadata
from .settings import KafkaSettings, group_config, transaction_config
from .topics import Topics
from .transactions import Transactions


def move(
    settings: KafkaSettings,
    topics: Topics,
    groups: Groups,
    group: str,
    offsets: Mapping[TopicPartition, int],
    expected: Mapping[TopicPartition, int | None] | None,
    appends: Sequence[Append],
) -> None:
    """Sets the offsets and appends. Raises GroupActive, OffsetsMoved, AppendRefused, OutcomeUnknown."""
    check(appends, topics)
    client = f"rewindq-mover-{uuid.uuid4().hex[:8]}"
    transactions = Transactions(transaction_config(settings, client, f"{group}.mover"), settings.transaction_timeout)
    try:
        transactions.open()
        groups.require_idle(group)
        groups.check(group, expected)
        # Members wait for undecided offsets: who joins behind this look begins with what is set here.
        transactions.run(
            appends,
            [tp(*place, offset) for place, offset in offsets.items()],
            _no_membership(settings, group, client),
            lambda: groups.require_idle(group),
        )
    except Fenced as fenced:
        raise OffsetsMoved(f"somebody else sets the offsets of group {group} right now: nothing was done") from fenced
    finally:
        transactions.close()


def _no_membership(settings: KafkaSettings, group: str, client: str) -> bytes:
    consumer = Consumer(dict(group_config(settings, group, client)))
    try:
        return raw_metadata(consumer)
    finally:
        consumer.close()
