"""Requests to the cluster: asked, waited for, and their errors turned into the log's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rewindq.engine.ports.log import LogError, NoSuchTopic

from .errors import TOPIC_MISSING_CODES, error_of, text
from .settings import KafkaSettings, admin_config

_T = TypeVar("_T")

# The broker asked is not, or not yet, the one in charge.
_MOVING_CODES = frozenset(
    {
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
_UNREACHABLE_CODES = _MOVING_CODES | {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}


class TopicExistsError(LogError):
    """The topic exists already."""


class GroupBusyError(LogError):
    """The group has members."""


class GroupMissingError(LogError):
    """There is no such group."""


class Requests:
    """The admin client, shared by what uses it. Safe to use from several threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.client = AdminClient(admin_config(settings))
        self._pause = threading.Event()

    def ask(self, what: str, request: Callable[[float], Future[_T]]) -> _T:
        """Sends a request, given its time-out in seconds, and waits for its answer. Raises as `wait`.

        While a new partition's leader or a group's coordinator is being found, it is sent again.
        """
        deadline = time.monotonic() + self.settings.request_timeout
        while True:
            try:
                return request(self.settings.request_timeout).result()
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() not in _MOVING_CODES or time.monotonic() > deadline:
                    raise self.meaning(what, error) from exception
            self._pause.wait(0.02)

    def wait(self, what: str, future: Future[_T]) -> _T:
        """Waits for the answer to a request.

        Raises LogUnavailable, NoSuchTopic, TopicExistsError, GroupBusyError, GroupMissingError, or LogError.
        """
        try:
            return future.result()
        except KafkaException as exception:
            raise self.meaning(what, error_of(exception)) from exception

    def meaning(self, what: str, error: KafkaError) -> LogError:
        """The log's error for one of Kafka's."""
        code = error.code()
        if code in TOPIC_MISSING_CODES:
            return NoSuchTopic(f"{what}: {text(error)}")
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return TopicExistsError(f"{what}: {text(error)}")
        if code in (KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID):
            return GroupBusyError(f"{what}: {text(error)}")
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return GroupMissingError(f"{what}: {text(error)}")
        if code in _UNREACHABLE_CODES:
            return self.settings.unavailable(what, text(error))
        return LogError(f"{what}: Kafka at {self.settings.bootstrap} refused ({text(error)})")
