"""From a wrong balance to the order that made it wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .audit import Account, Audit
from .orders import Order


class Suspect(NamedTuple):
    """An order that wrote wrong points on its customer's account."""

    order: Order
    account: Account

    @property
    def cache_step(self) -> str:
        """The step that read the stale cache."""
        return f"cache points/{self.order.key}"


def find_suspect(audit: Audit, orders: Sequence[Order]) -> Suspect | None:
    """The customer's newest order on a wrong account that read the cache stale, once in its account's life.

    So the mended code, run from there, must come to what the file says. Orders that met a write conflict go first.
    """
    by_customer: dict[str, list[Order]] = {}
    for order in orders:
        by_customer.setdefault(order.customer_id, []).append(order)
    found = []
    for account in audit.accounts:
        stale = [o for o in by_customer[account.customer_id] if o.job_id in audit.incidents.stale_writes]
        last = audit.last_orders.get(account.customer_id)
        if len(stale) == 1 and stale[0].order_id == last:
            found.append(Suspect(stale[0], account))
    found.sort(key=lambda s: (s.order.job_id not in audit.incidents.conflicts, s.order.order_id))
    return found[0] if found else None
