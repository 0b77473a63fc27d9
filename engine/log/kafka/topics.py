"""The cluster's topics: which there are, making and deleting them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ClusterMetadata, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from rewindq.engine.ports.log import NoSuchTopic, PartitionCountMismatch, TopicSpec

from .errors import error_of, text
from .requests import Requests, TopicExistsError
from .settings import MESSAGE_BYTES_MAX


class Topics:
    """Topics by name, their partition counts remembered. Safe to use from several threads."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._pause = threading.Event()
        self._known: dict[str, int] = {}

    def cluster_id(self) -> str:
        """The cluster's id. Raises LogUnavailable."""
        return str(self._metadata().cluster_id)

    def partitions(self, name: str) -> int:
        """The topic's partition count, 0 when there is no such topic. Raises LogUnavailable."""
        count = self._known.get(name)
        return self.refresh().get(name, 0) if count is None else count

    def require(self, name: str, partition: int) -> None:
        """Raises NoSuchTopic when there is no such partition."""
        count = self.partitions(name)
        if not 0 <= partition < count:
            known = f"the topic has {count} partitions" if count else "there is no such topic"
            raise NoSuchTopic(f"{name}[{partition}]: {known} on Kafka at {self._requests.settings.bootstrap}")

    def refresh(self) -> dict[str, int]:
        """All topics as the cluster knows them now, without Kafka's internal ones. Raises LogUnavailable."""
        self._known = {
            name: len(topic.partitions)
            for name, topic in self._metadata().topics.items()
            # A topic that is being made or deleted shows up with an error or without leaders.
            if not name.startswith("__") and topic.error is None and topic.partitions
        }
        return self._known

    def _metadata(self) -> ClusterMetadata:
        settings = self._requests.settings
        try:
            return self._requests.client.list_topics(timeout=settings.request_timeout)
        except KafkaException as exception:
            raise settings.unavailable("listing topics", text(error_of(exception))) from exception

    def create(self, specs: Sequence[TopicSpec]) -> None:
        """Creates what is missing, replicated as far as the cluster has brokers, three times at most."""
        known = self.refresh()
        missing = [spec for spec in specs if spec.name not in known]
        if missing:
            self._create(missing)
            known = self._await(lambda found: all(spec.name in found for spec in missing), "new topics")
        for spec in specs:
            if known[spec.name] != spec.partitions:
                raise PartitionCountMismatch(
                    f"topic {spec.name} has {known[spec.name]} partitions, not {spec.partitions} as asked: "
                    "use the count that it has, or another namespace"
                )

    def _create(self, specs: Sequence[TopicSpec]) -> None:
        requests, client = self._requests, self._requests.client
        cluster = requests.ask("brokers", lambda t: client.describe_cluster(request_timeout=t))
        new = [_new_topic(spec, copies=min(3, len(cluster.nodes))) for spec in specs]
        futures = client.create_topics(new, request_timeout=requests.settings.request_timeout)
        for name, future in futures.items():
            try:
                requests.wait(f"creating topic {name}", future)
            except TopicExistsError:
                continue  # another process made it in between; its count is compared like any other's

    def delete(self, names: Sequence[str]) -> None:
        """Deletes topics with their records; unknown names are passed over."""
        requests = self._requests
        known = self.refresh()
        present = [name for name in names if name in known]
        if not present:
            return
        futures = requests.client.delete_topics(present, request_timeout=requests.settings.request_timeout)
        for name, future in futures.items():
            try:
                requests.wait(f"deleting topic {name}", future)
            except NoSuchTopic:
                continue  # another process deleted it in between
        self._await(lambda found: not any(name in found for name in present), "deleted topics")

    def retention_ms(self, name: str) -> int | None:
        """The topic's `retention.ms`; None: for ever. Raises NoSuchTopic, LogUnavailable, or LogError when refused."""
        self.require(name, 0)
        resource, client = ConfigResource(ResourceType.TOPIC, name), self._requests.client
        entries = self._requests.ask(
            f"settings of {name}", lambda t: client.describe_configs([resource], request_timeout=t)[resource]
        )
        kept = int(entries["retention.ms"].value)
        return None if kept < 0 else kept

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """The topics' ids. Raises NoSuchTopic, LogUnavailable."""
        return {name: self._id(name) for name in names}

    def _id(self, name: str) -> str:
        self.require(name, 0)
        asked, client = TopicCollection([name]), self._requests.client
        told = self._requests.ask(
            f"topic {name}", lambda timeout: client.describe_topics(asked, request_timeout=timeout)[name]
        )
        return str(told.topic_id)

    def _await(self, done: Callable[[dict[str, int]], bool], what: str) -> dict[str, int]:
        """The topics once the cluster's metadata shows the change. Raises LogUnavailable."""
        deadline = time.monotonic() + self._requests.settings.request_timeout
        while not done(known := self.refresh()):
            if time.monotonic() > deadline:
                raise self._requests.settings.unavailable(what, "its metadata does not show the change")
            self._pause.wait(0.01)
        return known


def _new_topic(spec: TopicSpec, copies: int) -> NewTopic:
    config = {
        "cleanup.policy": "compact" if spec.compact else "delete",
        "retention.ms": str(-1 if spec.retention_ms is None else spec.retention_ms),
        "retention.bytes": "-1",
        # Two of three copies must have a record before it is accepted: it survives the loss of one broker.
        "min.insync.replicas": str(2 if copies >= 3 else 1),
        "max.message.bytes": str(MESSAGE_BYTES_MAX + 64 * 1024),
        # Events keep our timestamps: seeks by time depend on them. Inputs are kept by time, and a producer whose clock
        # is far behind must not have its submissions deleted before they are taken in: there the broker's clock counts.
        "message.timestamp.type": "CreateTime" if spec.retention_ms is None else "LogAppendTime",
        "message.timestamp.before.max.ms": str(2**63 - 1),
        "message.timestamp.after.max.ms": str(2**63 - 1),
    }
    return NewTopic(spec.name, spec.partitions, copies, config=config)
