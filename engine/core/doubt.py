"""Effects in doubt: how they are told, and what a person's word about one decides. Pure."""

from __future__ import annotations

import shlex

from . import events as e
from . import state as s
from . import values
from .refused import ValueRefused
from .texts import bounded

#: Why an effect is in doubt, as far as it is told within another message.
WHY_MAX = 300


def resolve_command(key: str) -> str:
    """The command that tells an effect's outcome, without its options."""
    return f"rewindq effects resolve {shlex.quote(key)}"


def unresolved(name: str, key: str, why: str, then: str = "retry the job") -> str:
    """What a person reads of an effect that only a person can resolve; names the command with the key."""
    command = resolve_command(key)
    return (
        f"effect {name!r} is in doubt: {bounded(why, WHY_MAX)}. Find out whether the call was done, tell it with "
        f"`{command} --succeeded RESULT_JSON --reason R` or `{command} --failed --reason R`, then {then}"
    )


def decide_resolve(
    known: tuple[int, s.Idempotency] | None,
    holder: s.JobState | None,
    command: e.ResolveCommand,
    unusable: str | None = None,
) -> tuple[e.Event, ...]:
    """An effect's outcome on a person's word, or the refusal.

    `holder` is the job that started the call last; `unusable` says why the given answer cannot be recorded.
    """
    if known is None:
        return (refused_resolve(command, f"no effect with key {command.key!r} was ever started on this partition"),)
    record = known[1]
    refusal = resolve_refusal(command.key, record, holder) or _malformed(command) or unusable
    if refusal is not None:
        return (refused_resolve(command, refusal),)
    resolved = e.EffectResolved(
        command.key,
        command.outcome,
        command.answer,
        command.answer_ref,
        command.reason,
        command.actor,
        command.command_id,
    )
    status: e.Status = "success" if command.outcome == s.DONE else "fail"
    return (e.Event(resolved, step=record.step, status=status, side_effect=record.step),)


def refused_resolve(command: e.ResolveCommand, reason: str) -> e.Event:
    """The answer to a person whose word cannot be taken."""
    return e.Event(e.CommandRefused("resolve", command.command_id, bounded(reason)), status="fail")


def resolve_refusal(key: str, record: s.Idempotency, holder: s.JobState | None) -> str | None:
    """Why an effect cannot be resolved by a person now; None where it can."""
    if holder is not None and holder.status == s.RUNNING:
        return (
            f"attempt {holder.attempt} of job {record.job_id} is running, and may learn the outcome of {key!r} itself: "
            "wait until it has ended, or cancel the job"
        )
    if record.status in (s.DONE, s.FAILED):
        return f"effect {key!r} is not in doubt: it is recorded as {record.status}"
    return None


def _malformed(command: e.ResolveCommand) -> str | None:
    if command.outcome not in (s.DONE, s.FAILED):
        return f"outcome {command.outcome!r} must be {s.DONE!r} or {s.FAILED!r}"
    if command.outcome == s.FAILED and (command.answer is not None or command.answer_ref is not None):
        return "a call that was not done has no answer"
    return None


def answer_refusal(data: bytes) -> str | None:
    """Why bytes are no answer as an effect records it; None where they are."""
    try:
        canonical = values.encode(values.decode(data))
    except ValueRefused as error:
        return f"the answer cannot be recorded: {error}"
    return None if canonical == data else "the answer is not in canonical form"
