"""Consumer groups as an operator sees them."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError

from rewindq.engine.ports.log import GroupActive, GroupState, NoSuchTopic, TopicPartition

from .. import refusals
from .errors import TOPIC_MISSING_CODES, error_of, tp
from .requests import GroupBusyError, GroupMissingError, Requests


class Groups:
    """Lists groups, sets their offsets, deletes them. Safe to use from several threads."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def list(self, prefix: str) -> list[GroupState]:
        """Groups whose name begins with `prefix`, by name."""
        listed = self._requests.ask("groups", lambda t: self._requests.client.list_consumer_groups(request_timeout=t))
        if listed.errors:
            # Part of the brokers did not answer: a list without their groups would say that those do not exist.
            error = listed.errors[0]
            raise self._requests.meaning("groups", error if isinstance(error, KafkaError) else error_of(error))
        names = sorted(group.group_id for group in listed.valid if group.group_id.startswith(prefix))
        return [GroupState(name, self._members(name), self._offsets(name)) for name in names]

    def _members(self, group: str) -> tuple[str, ...]:
        try:
            found = self._requests.ask(
                f"group {group}",
                lambda t: self._requests.client.describe_consumer_groups([group], request_timeout=t)[group],
            )
        except GroupMissingError:
            return ()
        return tuple(sorted(member.client_id for member in found.members))

    def _offsets(self, group: str) -> dict[TopicPartition, int]:
        request = [ConsumerGroupTopicPartitions(group)]
        try:
            found = self._requests.ask(
                f"offsets of group {group}",
                lambda t: self._requests.client.list_consumer_group_offsets(request, request_timeout=t)[group],
            )
        except GroupMissingError:
            return {}
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions or () if each.offset >= 0}

    def set_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        expected: Mapping[TopicPartition, int | None] | None,
    ) -> None:
        """Sets committed offsets of a group without members, making the group."""
        self.require_idle(group)
        self.check(group, expected)
        request = [ConsumerGroupTopicPartitions(group, [tp(*key, offset) for key, offset in offsets.items()])]
        try:
            found = self._requests.ask(
                f"setting offsets of group {group}",
                lambda t: self._requests.client.alter_consumer_group_offsets(request, request_timeout=t)[group],
            )
        except GroupBusyError:
            raise self._active(group) from None
        for each in found.topic_partitions or ():
            if each.error is not None and each.error.code() in TOPIC_MISSING_CODES:
                raise NoSuchTopic(f"{each.topic}[{each.partition}]: no such topic to set offsets of {group} for")
            if each.error is not None:
                raise self._active(group)

    def check(self, group: str, expected: Mapping[TopicPartition, int | None] | None) -> None:
        """Raises OffsetsMoved where the committed offsets are others than expected."""
        if expected:
            refusals.check_expected(group, self._offsets(group), expected)

    def delete(self, group: str) -> None:
        """Deletes a group without members; an unknown one is passed over."""
        self.require_idle(group)
        try:
            self._requests.ask(
                f"deleting group {group}",
                lambda t: self._requests.client.delete_consumer_groups([group], request_timeout=t)[group],
            )
        except GroupBusyError:
            raise self._active(group) from None
        except GroupMissingError:
            return

    def require_idle(self, group: str) -> None:
        """Raises GroupActive."""
        if self._members(group):
            raise self._active(group)

    def _active(self, group: str) -> GroupActive:
        members = ", ".join(self._members(group)) or "a member that is joining"
        return GroupActive(f"group {group} is running ({members}): stop its members first")
