"""What `rewindq doctor` looks at on Kafka: brokers, copies, and what a topic needs to survive the loss of one."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from rewindq.engine.log.kafka.requests import Requests
from rewindq.engine.log.kafka.settings import parse
from rewindq.engine.runtime.deployment import Deployment

#: Brokers from which on every record can survive the loss of one.
BROKERS_SAFE = 3


def broker_checks(deployment: Deployment) -> Iterator[tuple[str, bool, str]]:
    """`(name, ok, detail)` of the brokers and of the namespace's topics."""
    requests = Requests(parse(deployment.settings.log))
    brokers = requests.ask("brokers", lambda t: requests.client.describe_cluster(request_timeout=t)).nodes
    few = "" if len(brokers) >= BROKERS_SAFE else "; with fewer than 3 the loss of one stops the queue or loses records"
    yield "brokers", True, f"{len(brokers)}{few}"
    names = deployment.topics
    wanted = [names.jobs, names.commands, names.lifecycle, names.domain]
    present = deployment.log.topics(f"{deployment.settings.namespace}.")
    topics = [name for name in wanted if name in present]
    if topics:
        yield _copies(requests, topics, len(brokers))


def _copies(requests: Requests, topics: list[str], brokers: int) -> tuple[str, bool, str]:
    try:
        metadata = requests.client.list_topics(timeout=requests.settings.request_timeout)
        copies = min(len(p.replicas) for name in topics for p in metadata.topics[name].partitions.values())
        insync = min(len(p.isrs) for name in topics for p in metadata.topics[name].partitions.values())
    except KafkaException as error:
        return "copies", False, f"topics cannot be described: {error}"
    needed = min(_needed(requests, name) for name in topics)
    told = f"{copies} of each record, {insync} in sync, {needed} needed to accept one"
    if insync < needed:
        return "copies", False, f"{told}: submissions are refused until more brokers are in sync"
    if brokers >= BROKERS_SAFE and (copies < BROKERS_SAFE or needed < 2):
        return "copies", False, f"{told}: raise replication to 3 and min.insync.replicas to 2"
    return "copies", True, told


def _needed(requests: Requests, topic: str) -> int:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = requests.ask(
        f"settings of {topic}",
        lambda t: requests.client.describe_configs([resource], request_timeout=t)[resource],
    )
    return int(entries["min.insync.replicas"].value)
