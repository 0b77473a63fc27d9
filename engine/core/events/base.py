"""What all event bodies are."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

Status: TypeAlias = Literal["success", "fail", "skipped", "compensated"]

#: `seq` of records that no partition owner numbered: submissions, commands and writer fences.
UNNUMBERED = -1


class Body(msgspec.Struct, frozen=True):
    """Base of all event bodies. `topic` says where the owner appends it."""

    topic: ClassVar[str] = "lifecycle"


class DomainBody(Body, frozen=True):
    """Base of the domain topic's bodies: what the business logic did."""

    topic: ClassVar[str] = "domain"
