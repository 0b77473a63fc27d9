"""A job's past, for the process that may read log and store: its recording, and its partition's state."""

from __future__ import annotations

from types import TracebackType

from ..codec.avro import UndecodableRecord
from ..core import state as s
from ..core.events import EventRecord
from ..runtime.deployment import Deployment
from ..runtime.past import PartitionPast, Past, read_at
from ..store.keys import SEQ_MAX
from .recording import NoRecording, Recording


class JobPast:
    """A job with its recording and its partition's past. Close it, or use it as a context manager."""

    def __init__(self, past: Past, partition: PartitionPast, head: s.JobHead, recording: Recording) -> None:
        self.past = partition
        self.head = head
        self.recording = recording
        self._all = past

    def close(self) -> None:
        """Frees the stores' files."""
        self._all.close()

    def with_recording(self, recording: Recording) -> JobPast:
        """The same job with another recording of it."""
        return JobPast(self._all, self.past, self.head, recording)

    def __enter__(self) -> JobPast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_job(deployment: Deployment, job_id: str) -> JobPast:
    """Finds an accepted job and reads its recording. Raises NoRecording, GapInLog, LogDamaged."""
    past = Past(deployment)
    try:
        found = past.accepted(job_id)
        if found is None:
            raise NoRecording(
                f"no worker has taken in a job {job_id!r} of namespace {deployment.settings.namespace!r} "
                f"on {deployment.log.url}: `rewindq jobs list` shows what there is"
            )
        partition = past.partition(found.partition)
        return JobPast(past, partition, found.head, _recording(deployment, partition, job_id))
    except BaseException:
        past.close()
        raise


def _recording(deployment: Deployment, past: PartitionPast, job_id: str) -> Recording:
    """What can be read of a job's records up to the first damaged one, and where some are not there any more."""
    places = list(past.pointers(job_id))
    order = {place: number for number, place in enumerate(places)}
    records: dict[int, EventRecord] = {}
    torn: dict[int, str] = {}
    for record in read_at(deployment.log, past.partition, places):
        number = order[record.topic, record.offset]
        try:
            records[number] = deployment.codec.decode(record.value)
        except UndecodableRecord as error:
            torn[number] = f"{record.topic} partition {record.partition} offset {record.offset}: {error}"
    end = min(torn, default=len(places))
    whole = [record for number, record in sorted(records.items()) if number < end]
    return Recording.of(job_id, past.partition, whole, torn.get(end), _gone(records, end))


def _gone(records: dict[int, EventRecord], end: int) -> tuple[tuple[int, int], ...]:
    """The events on both sides of what is not there, in order."""
    found: list[tuple[int, int]] = []
    before, missing = -1, False
    for number in range(end):
        record = records.get(number)
        if record is None:
            missing = True
            continue
        if missing:
            found.append((before, record.seq))
        before, missing = record.seq, False
    return (*found, (before, SEQ_MAX)) if missing else tuple(found)
