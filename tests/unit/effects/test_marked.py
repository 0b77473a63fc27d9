"""Marked fields are masked however a model holds them: also where its fields' types promise nothing of the kind."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from rewindq.engine.core.secrets import MASK
from rewindq.engine.effects.marked import dumped


class Inner(BaseModel):
    name: str = "n"


class Marked(Inner):
    token: str = Field("hidden", json_schema_extra={"secret": True})


class Scalars(BaseModel):
    amount: Decimal | None = None
    count: int = 1


class MarkedScalar(Scalars):
    token: str | None = Field("hidden", json_schema_extra={"secret": True})


class Nested(BaseModel):
    inner: SerializeAsAny[Inner]


class Anything(BaseModel):
    item: Any


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    count: int = 1


def test_scalars_are_shown_as_they_are() -> None:
    assert dumped(Scalars(amount=Decimal("1.10"))) == {"amount": "1.10", "count": 1}


@pytest.mark.parametrize(
    "model",
    [
        MarkedScalar(),
        Nested(inner=Marked()),
        Anything(item=Marked()),
        Anything(item=[{"deep": Marked()}]),
        Open.model_validate({"item": Marked()}),
    ],
    ids=["own field", "a subclass", "any", "nested", "extra"],
)
def test_marked_fields_are_masked_wherever_they_are(model: BaseModel) -> None:
    shown = str(dumped(model))
    assert MASK in shown and "hidden" not in shown


def test_none_under_a_mark_stays_none() -> None:
    assert dumped(MarkedScalar(token=None))["token"] is None
