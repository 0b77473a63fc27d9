"""A job's compensations: its effects undone, the last one first, each as an effect of its own under its own key."""

from __future__ import annotations

from rewindq.engine.core import decide as d
from rewindq.engine.core import events as e
from rewindq.engine.core import state as s
from rewindq.engine.core import values
from rewindq.engine.core.compensate import SUFFIX, Undo, Undoable, undo_of
from rewindq.engine.core.secrets import hide
from rewindq.engine.effects.errors import BadStep
from rewindq.engine.effects.gate import EffectCall
from rewindq.engine.runtime.app import App
from rewindq.engine.runtime.compensations import CompensationRefused, find, fitted

from .owner import Owner
from .session import LiveSession


class CompensatingSession(LiveSession):
    """A live session whose effects undo others: their steps are `compensated`."""

    def succeeded(self, request: d.EffectRequest, answer: bytes | None, duration_ms: int, evidence: str) -> None:
        """Records the outcome."""
        inline, ref = self.kept(None if answer is None else hide(answer, self._run.secrets))
        self._outcome(request, e.EffectSucceeded(request.key, inline, ref, duration_ms, evidence), "compensated")

    async def run(self, app: App, undo: Undo) -> None:
        """Undoes what is due. Raises what a compensation raises, and leaves the rest: order matters."""
        for one in undo.due:
            await self.effect(self._call(app, one))

    def _call(self, app: App, one: Undoable) -> EffectCall:
        step, record = one.step + SUFFIX, one.record
        given = values.decode(self.stored(record.compensation, record.compensation_ref) or b"null")
        answer = self.stored(record.answer, record.answer_ref)
        result = None if answer is None else values.decode(answer)
        try:
            function = find(app, given["call"])
            args, kwargs = fitted(function, (result, *given["args"]), given["kwargs"])
        except CompensationRefused as error:
            raise BadStep(str(error), step=step) from error
        idempotent, timeout = given["idempotent"], given["timeout"]
        return EffectCall(step, step, function, args, kwargs, one.key + SUFFIX, idempotent, None, timeout, self.token)


def undo_in(owner: Owner, job_id: str) -> Undo:
    """What there is to undo of a job, as its partition knows it."""
    return undo_of(job_id, owner.states.open_effects(job_id), owner.states.idempotency_at)


def is_compensating(owner: Owner, job_id: str) -> s.Failure | None:
    """The failure for which a job's effects are being undone; None where they are not."""
    job = owner.states.job(job_id)
    return None if job is None else job.compensating
