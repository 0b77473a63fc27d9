"""Where this process's Rewindq lives: the log, topics, codec, blobs and state folder, opened from settings.

The only place that knows all adapters.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from ..blobs.folder import FolderBlobs
from ..codec.avro import Codec
from ..core.names import MAIN, Topics
from ..log.disks import NETWORK, file_system
from ..log.opener import open_log
from ..ports.blobs import Blobs
from ..ports.clock import Clock
from ..ports.log import Log, TopicSpec
from ..store import generations
from .clock import SystemClock
from .log_time import LogTime
from .pinned import check, pin, pinned
from .settings import Settings, SettingsError

#: Submissions, commands and investigation entries stay readable this long; events stay.
INPUT_RETENTION_MS = 30 * 86400 * 1000
#: What was asked of the log's clock is of no use later.
CLOCK_RETENTION_MS = 3600 * 1000


class NotCreated(Exception):
    """There is no such log, or the namespace has no topics on it yet. Says what creates them."""


class BodyTooLarge(Exception):
    """A payload, result or answer is over the inline limit and there is no blob store. Names both sizes."""


class Deployment:
    """The parts, opened. Close it, or use it as a context manager."""

    def __init__(self, settings: Settings, log: Log, codec: Codec, blobs: Blobs | None, clock: Clock) -> None:
        self.settings = settings
        self.log = log
        self.codec = codec
        self.blobs = blobs
        self.clock = clock
        self.topics = Topics(settings.namespace)
        self.group = self.topics.worker_group
        self.time = LogTime(lambda: log.now_us(self.topics.clock), lambda: self.clock.monotonic())
        self._partitions: int | None = None

    @classmethod
    def open(cls, settings: Settings, *, create: bool = True) -> Deployment:
        """Opens the log and what stands beside it. An embedded log that is not there yet is made, if `create`.

        Raises LogUnavailable, SettingsError, NotCreated.
        """
        if not create:
            _check_there(settings)
        log = open_log(settings.log)
        codec = _codec(settings)
        folder = settings.blobs_folder
        return cls(settings, log, codec, FolderBlobs(folder) if folder is not None else None, SystemClock())

    @property
    def partitions(self) -> int:
        """The namespace's partition count. Raises NotCreated, PartitionCountMismatch."""
        if self._partitions is None:
            found = self.log.topics(self.topics.jobs).get(self.topics.jobs)
            if found is None:
                raise NotCreated(
                    f"namespace {self.settings.namespace!r} has no topics on {self.log.url}: "
                    "submit a job or start a worker to create them, or check --log and --namespace"
                )
            check(self.topics, found, pinned(self.log, self.topics))
            self._partitions = found
        return self._partitions

    def ensure_topics(self) -> None:
        """Creates the namespace's topics where they are missing.

        Raises PartitionCountMismatch when one has another count than the namespace was made with.
        """
        topics = self.topics
        known = self.log.topics(topics.jobs).get(topics.jobs)
        count = known if known is not None else self.settings.partitions
        made_with = pinned(self.log, topics)
        check(topics, count, made_with)
        inputs = (topics.jobs, topics.commands, topics.investigation)
        self.log.create_topics(
            [TopicSpec(name, count, INPUT_RETENTION_MS) for name in inputs]
            + [TopicSpec(name, count) for name in (topics.lifecycle, topics.domain)]
            + [TopicSpec(topics.snapshots, count, compact=True), TopicSpec(topics.branches, 1, compact=True)]
            + [TopicSpec(topics.clock, 1, CLOCK_RETENTION_MS)]
        )
        if made_with is None:
            pin(self.log, topics, count, self.clock.now_us())

    def check_state_folder(self) -> None:
        """Raises SettingsError where a worker's stores would lie on a network file system."""
        folder = Path(self.settings.state_dir)
        kind = file_system(folder)
        if kind in NETWORK:
            raise SettingsError(
                f"state folder {folder.absolute()} lies on a network file system ({kind}), where a store may be opened "
                "twice whatever its locks say: name a local disk with --state-dir; stores are rebuilt from the log"
            )

    def large(self, data: bytes | None) -> tuple[bytes | None, str | None]:
        """A body as `(inline, reference)`: over the limit it goes to the blob store. Raises BodyTooLarge."""
        limit = self.settings.body_limit_bytes
        if data is None or len(data) <= limit:
            return data, None
        if self.blobs is None:
            raise BodyTooLarge(
                f"a body of {len(data)} bytes is over the limit of {limit}, and no blob store is set: "
                "give a folder that all workers share (--blobs or REWINDQ_BLOBS)"
            )
        return None, self.blobs.put(data)

    def store_path(self, partition: int) -> Path:
        """The folder of a partition's store: its current generation."""
        return generations.current(self.partition_folder(partition))

    def partition_folder(self, partition: int) -> Path:
        """The folder that holds the generations of a partition's store."""
        return self.branch_folder(MAIN) / f"p{partition}"

    def branch_folder(self, branch: str) -> Path:
        """The folder that holds a branch's stores."""
        return Path(self.settings.state_dir) / self.settings.namespace / branch

    def close(self) -> None:
        """Closes the log."""
        self.log.close()

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_there(settings: Settings) -> None:
    """Raises NotCreated; remains of a log whose file is gone are for the log itself to judge."""
    path = settings.log_file
    if path is not None and not path.exists() and not path.with_name(path.name + "-wal").exists():
        raise NotCreated(
            f"there is no log {path.absolute()} ({settings.log}): submit a job or start a worker to create it, "
            "or check --log and the current folder"
        )


def _codec(settings: Settings) -> Codec:
    if settings.schema_registry_url is None:
        return Codec()
    # Imported only where it is asked for: its libraries come with the extra `rewindq[registry]`.
    from ..codec.registry import open_registry

    return Codec(open_registry(settings.schema_registry_url))
