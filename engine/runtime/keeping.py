"""How long what is known under effects' keys is kept, and whether that goes with what else is kept."""

from __future__ import annotations

from typing import NamedTuple

from ..ports.log import LogError
from .deployment import Deployment
from .settings import SettingsError

_DAY = 86_400


class Keeping(NamedTuple):
    """What the policy comes to here: whether it can be accepted (None: nobody can tell), and why, for people."""

    ok: bool | None
    told: str


def look_at_keeping(deployment: Deployment) -> Keeping:
    """Holds `keep_keys` against how long submissions and commands can be read again."""
    keep = deployment.settings.keep_keys
    if keep is None:
        return Keeping(True, "kept for ever")
    told = f"answers are dropped {_duration(keep)} after the end of their job"
    if deployment.settings.log_file is not None:
        why = "this log keeps every submission, but job ids are known for ever: one that is read again runs nothing"
        return Keeping(True, f"{told}; {why}")
    names = (deployment.topics.jobs, deployment.topics.commands)
    try:
        kept = {name: deployment.log.retention_ms(name) for name in names}
    except LogError as error:
        return Keeping(
            None, f"{told}; how long topics are kept is not told ({error}): keep keys longer than {' and '.join(names)}"
        )
    for name, retention in kept.items():
        if retention is None or keep * 1000 < retention:
            length = "for ever" if retention is None else f"for {_duration(retention / 1000)}"
            return Keeping(
                False,
                f"keep_keys is {_duration(keep)}, but topic {name} keeps its records {length}: a rewind could ask "
                "again for what was dropped. Raise keep_keys to that, or lower the topic's retention.ms",
            )
    longest = max(retention for retention in kept.values() if retention is not None)
    return Keeping(True, f"{told}; submissions and commands can be read again for {_duration(longest / 1000)}")


def check_keeping(deployment: Deployment) -> Keeping:
    """The same for a worker's start. Raises SettingsError where keys would go before what may ask for them."""
    found = look_at_keeping(deployment)
    if found.ok is False:
        raise SettingsError(found.told)
    return found


def _duration(seconds: float) -> str:
    return f"{seconds / _DAY:g} d" if seconds >= _DAY else f"{seconds:g} s"
