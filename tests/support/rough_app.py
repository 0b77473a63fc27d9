"""An app whose jobs are rough with the process they run in: they kill it, or hold its interpreter up."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, field_validator
from tests.support.slow_app import find, serve

from rewindq import App, Context, Retry
from rewindq.engine.core import events as e
from rewindq.engine.core import values
from rewindq.engine.core.partitioner import partition_for
from rewindq.engine.ports.log import Append
from rewindq.engine.runtime.deployment import Deployment
from rewindq.engine.runtime.settings import Settings

app = App("rough")


class Work(BaseModel):
    """Work on a thing: `seconds` in an outside service."""

    thing: str
    number: int = 0
    seconds: float = 0.0


class Gone(BaseException):
    """Ends whoever lets it through, as a process that ends in the middle."""


#: Letters that this process has begun to read.
begun: list[str] = []


class Letter(BaseModel):
    """Some letters end the process that reads them."""

    text: str

    @field_validator("text")
    @classmethod
    def read(cls, text: str) -> str:
        """Ends the process for `exit` and `kill`."""
        begun.append(text)
        if text == "exit":
            raise Gone
        if text == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return text


class Job(NamedTuple):
    """A submission. `due` microseconds since 1970."""

    type: str
    job_id: str
    payload: dict[str, Any]
    key: str
    due: int | None = None


def submit(settings: Settings, jobs: Sequence[Job]) -> None:
    """Appends submissions straight to the jobs topic, each at its key's home."""
    with Deployment.open(settings) as deployment:
        deployment.ensure_topics()
        appends = []
        for job in jobs:
            payload = values.encode(job.payload)
            body = e.JobSubmitted(job.type, payload, None, values.digest(payload), due=job.due)
            record = e.EventRecord(e.UNNUMBERED, 0, 1, 0, "test", job.job_id, 0, (e.Event(body),))
            place = partition_for(job.key.encode(), deployment.partitions)
            value = deployment.codec.encode(record)
            appends.append(Append(deployment.topics.jobs, place, job.key.encode(), value, time.time_ns() // 10**6))
        producer = deployment.log.producer()
        producer.append(appends)
        producer.close()


@app.job(key="thing:{thing}", max_lost=20)
async def work(ctx: Context, job: Work) -> str:
    """One call outside, and a state that tells of it."""
    answer: str = await ctx.effect("serve", serve, job.number, job.seconds, key=f"serve-{job.number}", on_doubt=find)
    await ctx.save("thing", job.thing, {"answer": answer}, expected=(await ctx.load("thing", job.thing)).version)
    return answer


@app.job(key="thing:{thing}")
async def bystander(ctx: Context, job: Work) -> str:
    """The same, with the usual limit of lost workers."""
    return await work(ctx, job)


@app.job(key="thing:{thing}")
async def kill(ctx: Context, job: Work) -> None:
    """Calls outside, and kills its process then."""
    await ctx.effect("serve", serve, job.number, job.seconds, key="serve", on_doubt=find)
    os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.Event().wait()


@app.job(key="letters")
async def post(ctx: Context, job: Letter) -> str:
    """Takes a letter on."""
    return job.text


@app.job(resource="thing:{thing}", retry=Retry(base=0.05, cap=0.2))
async def freeze(ctx: Context, job: Work) -> None:
    """Keeps the interpreter from everybody for whole seconds in its first attempt; calls and writes after it."""
    thing = await ctx.load("thing", job.thing)
    if ctx.attempt == 1:
        ctypes.PyDLL(None).sleep(int(job.seconds))
    await ctx.effect("serve", serve, job.number, 0.0, key="serve", on_doubt=find)
    await ctx.save("thing", job.thing, {"by": ctx.attempt}, expected=thing.version)
