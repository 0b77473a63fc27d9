"""Answers to operators' commands, kept among a partition's marks by job and command."""

from __future__ import annotations

from collections.abc import Callable

from ..core import state as s
from ..ports.store import Family, View


def read_answer(view: View, job_id: str, command_id: str) -> s.Answer | None:
    """The answer to a command about a job, None when it was not given yet."""
    data = view.get(Family.MARKS, s.answer_key(job_id, command_id).encode())
    return None if data is None else s.decode_answer(data)


class AnsweredCommands:
    """Implements `core.answered.Commands`; `get` and `put` read and write marks."""

    def __init__(self, get: Callable[[str], s.Answer | None], put: Callable[[str, s.Answer], None]) -> None:
        self._get = get
        self._put = put

    def of(self, job_id: str, command_id: str) -> s.Answer | None:
        """The answer to a command about a job, None when it was not given yet."""
        return self._get(s.answer_key(job_id, command_id))

    def note(self, job_id: str, command_id: str, answer: s.Answer) -> None:
        """Keeps a command's first answer."""
        if self.of(job_id, command_id) is None:
            self._put(s.answer_key(job_id, command_id), answer)
