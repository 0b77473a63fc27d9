"""The rules of a job type's keys and limits: which may stand beside each other, and where its jobs are at home then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from ..core.rate import BadRate, Rate
from ..core.times import are_seconds

#: `"order:{order_id}"`, or a function of the payload.
KeyRule = str | Callable[[Any], str] | None
OnFailure: TypeAlias = Literal["continue", "block_key"]


class BadRule(ValueError):
    """A rule cannot hold; names the job type, the rule and what to change."""


class Rules(NamedTuple):
    """What `@app.job` says about a type's keys and limits, as given."""

    resource: KeyRule
    key: KeyRule
    concurrency: int | None
    concurrency_key: KeyRule
    rate: str | None
    unique: KeyRule
    unique_for: float | None
    on_failure: OnFailure

    @property
    def keys(self) -> dict[str, KeyRule]:
        """The rules that make keys of payloads, by the argument's name."""
        return {name: getattr(self, name) for name in ("unique", "concurrency_key", "key", "resource")}

    def check(self, name: str) -> Rate | None:
        """The rate of the type, if all its rules can hold. Raises BadRule."""
        if self.concurrency is not None and self.concurrency < 1:
            raise BadRule(f"concurrency of {name!r} must be 1 or more, got {self.concurrency!r}")
        if self.unique_for is not None and (self.unique is None or not are_seconds(self.unique_for)):
            raise BadRule(f"unique_for of {name!r} must be seconds above 0 beside unique=, got {self.unique_for!r}")
        if self.on_failure not in get_args(OnFailure):
            raise BadRule(f"on_failure of {name!r} must be continue or block_key, got {self.on_failure!r}")
        if self.on_failure == "block_key" and self.resource is None:
            raise BadRule(f"on_failure='block_key' of {name!r} needs a resource= whose later jobs wait")
        try:
            return None if self.rate is None else Rate.parse(self.rate)
        except BadRate as error:
            raise BadRule(f"job type {name!r}: {error}") from error

    def home(self, name: str) -> KeyRule:
        """The rule of the partition key. A limit's rule must be the only one, or two of its jobs have no common home.

        Raises BadRule.
        """
        given = {what: rule for what, rule in self.keys.items() if rule is not None}
        if self.rate is not None:
            # One home for all of the type's jobs is one for those of each unique key, too.
            given.pop("unique", None)
            given = {"rate": lambda payload: rate_key(name), **given}
        if given.keys() <= {"key", "resource"}:
            return self.key
        (first, home), *others = given.items()
        for what, rule in others:
            if rule != home:
                raise BadRule(
                    f"{first}= and {what}= of {name!r} would be at home on different partitions: "
                    f"leave {what}= out, or give both the same rule"
                )
        return home


def rate_key(job_type: str) -> str:
    """The partition key of all jobs of a type that has a rate: one home, one bucket."""
    return f"rate:{job_type}"


def foreign_key(job_type: str, key: str, own: str | None) -> str:
    """Why a key is refused for a type whose limit holds under its own key only."""
    return (
        f"key {key!r} is not the one that the limits of {job_type!r} need: such a job is at home under {own!r}; "
        "leave the key out"
    )
