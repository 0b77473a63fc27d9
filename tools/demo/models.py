"""What goes into the shop's handler and what comes out."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel


class PlaceOrder(BaseModel):
    """A customer's order. `amount` in US dollars; `date` is YYYY-MM-DD."""

    order_id: int
    customer_id: str
    date: str
    quantity: int
    amount: Decimal


class Placed(BaseModel):
    """An order that went through, with the customer's points after it."""

    order_id: int
    receipt: str
    points: int
