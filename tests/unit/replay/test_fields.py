"""Which payload paths a model reads."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel, model_validator

from rewindq.engine.replay.fields import unread


class Item(BaseModel):
    sku: str
    count: int = 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 0


class Reshaped(BaseModel):
    known: int = 0

    @model_validator(mode="before")
    @classmethod
    def renamed(cls, data: Any) -> Any:
        return data


class Root(RootModel[dict[str, int]]):
    pass


class Order(BaseModel):
    order_id: str
    items: list[Item]
    first: Optional[Item] = None  # noqa: UP045 - both spellings of an optional model
    labels: dict[str, int] = {}
    either: Item | str = ""
    extra: Open = Open()
    renamed: int = Field(0, alias="old")
    several: int = Field(0, validation_alias=AliasChoices("one", AliasPath("two", "x")))


@pytest.mark.parametrize(
    "path",
    [
        "order_id", "items", "items.0", "items.0.sku", "first.count", "labels.anything", "either.anything",
        "extra.anything", "old", "one", "two.x", "order_id.beyond",
    ],
)  # fmt: skip
def test_paths_that_are_read(path: str) -> None:
    assert unread(Order, path) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nosuch", "Order has no field 'nosuch'; its fields are: order_id, items, first"),
        ("0", "Order has no field '0'"),
        ("items.0.price", "Item has no field 'price'; its fields are: sku, count"),
        ("first.price", "Item has no field 'price'"),
        ("renamed", "Order has no field 'renamed'; its fields are: order_id, items, first, labels, either, extra, old"),
    ],
)
def test_paths_that_would_change_nothing(path: str, reason: str) -> None:
    assert (unread(Order, path) or "").startswith(reason)


@pytest.mark.parametrize("model", [Open, Reshaped, Root])
def test_models_that_may_read_anything(model: type[BaseModel]) -> None:
    assert unread(model, "anything") is None
