"""From a wrong balance to the order that made it wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .audit import Audit
from .incidents import Write
from .orders import Order


class Suspect(NamedTuple):
    """The order that first wrote wrong points on its customer's account.

    `points` is what it wrote and `due` what was due then; `balance` and `balance_due` are the same at the end.
    `dues` are the points that were due at each version of the account.
    """

    order: Order
    points: int
    due: int
    balance: int
    balance_due: int
    dues: dict[int, int]

    @property
    def cache_step(self) -> str:
        """The step that read the stale cache."""
        return f"cache points/{self.order.key}"


def find_suspect(audit: Audit, orders: Sequence[Order]) -> Suspect | None:
    """The plainest case: an order that met a write conflict if there is one, then the shortest account, then the id."""
    by_job = {order.job_id: order for order in orders}
    found: list[Suspect] = []
    for account in audit.accounts:
        writes = audit.incidents.writes[f"customer:{account.customer_id}"]
        dues = _dues(writes, by_job)
        first = next((write for write in writes if write.points != dues[write.version]), None)
        if first is not None and first.job_id in audit.incidents.stale_writes:
            order = by_job[first.job_id]
            due = dues[first.version]
            found.append(Suspect(order, first.points, due, account.points, account.points_due, dues))
    conflicts = audit.incidents.conflicts
    found.sort(key=lambda s: (s.order.job_id not in conflicts, len(s.dues), s.order.order_id))
    return found[0] if found else None


def _dues(writes: Sequence[Write], by_job: dict[str, Order]) -> dict[int, int]:
    total, dues = 0, {}
    for write in writes:
        total += by_job[write.job_id].points
        dues[write.version] = total
    return dues
