"""The story that `rewindq demo` tells. All that it prints comes from what it has just run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from .audit import Audit, Check, audit
from .fingerprint import fingerprint
from .orders import Order
from .place import APP, FIXED_APP, Place
from .running import Ran, rewindq, run_workers, services, typed
from .suspects import Suspect, find_suspect
from .telling import Teller

PROCESSES = 2
#: Orders under way at once in one worker process: enough for two of one customer to meet.
CONCURRENCY = 8
FAULTS = 0.08
#: Seconds that a service takes.
LATENCY_S = 0.04
BRANCH = "mended"


class NothingFound(Exception):
    """The run had no order that met the bug. Says what to do."""


@dataclass
class Story:
    """One telling. `run` gives the totals as JSON, `ok` among them."""

    place: Place
    orders: Sequence[Order]
    teller: Teller
    kill: bool = True
    checks: list[Check] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Tells it from end to end. Raises CommandFailed, NothingFound."""
        began = time.monotonic()
        self.place.write_orders(self.orders)
        with services(self.place.folder, FAULTS, LATENCY_S) as process:
            self._open(process.pid)
            workers = self._work()
        found = audit(self.orders, self.place.folder, self.place.settings)
        self._incidents(found)
        suspect = self._wrong_balance(found)
        self._trace(suspect)
        before = self._fingerprint()
        dry_run = self._dry_run(suspect)
        fork = self._fork(suspect)
        self._diff(suspect)
        verified = self._verify(before)
        self._totals(found)
        seconds = round(time.monotonic() - began, 1)
        self._next(suspect, seconds)
        return {
            "ok": all(check.ok for check in self.checks),
            **found.totals(),
            "killed_pid": workers,
            "wrong_points": {
                "customer": suspect.order.customer_id,
                "order": suspect.order.job_id,
                "points": suspect.points,
                "due": suspect.due,
            },
            "dry_run_divergences": dry_run.answer["divergences"],
            "fork": fork.answer["diff"]["state"],
            "digest": verified.answer["digest"],
            "checks": [check._asdict() for check in self.checks],
            "folder": str(self.place.folder),
            "seconds": seconds,
        }

    def _rewindq(self, title: str, *arguments: str) -> Ran:
        self.teller.step(title, typed(arguments))
        return rewindq(self.place.folder, *arguments)

    def _check(self, *checks: Check) -> None:
        self.checks.extend(checks)
        self.teller.checks(checks)

    # --- the run --------------------------------------------------------------------------------------------------

    def _open(self, pid: int) -> None:
        customers = len({order.customer_id for order in self.orders})
        amount = sum((order.amount for order in self.orders), Decimal(0))
        self.teller.title("A small shop on real purchases (CDNOW, 1997 to 1998)")
        self.teller.say(
            f"{len(self.orders):,} orders of {customers:,} customers, {amount:,} USD. Each reserves at the warehouse, "
            "charges at the gateway, then books itself on the customer's account: orders, money spent, points. "
            f"Warehouse and gateway are a process of their own (pid {pid}) with ledgers of their own. The "
            f"gateway fails {FAULTS:.0%} of its calls: it refuses, or charges and never answers, or answers late."
        )
        submitted = self._rewindq("The orders are submitted.", "submit", "place_order", "--file", "orders.jsonl")
        self.teller.say(f"{submitted.answer['submitted']:,} jobs, in the order in which the customers placed them.")

    def _work(self) -> int | None:
        arguments = [
            "worker", "--app", APP, "--processes", str(PROCESSES),
            "--concurrency", str(CONCURRENCY), "--until-idle",
        ]  # fmt: skip
        self.teller.step(f"{PROCESSES} worker processes run them.", typed(arguments))
        half = len(self.orders) // 2 if self.kill else None
        ran = run_workers(self.place.folder, arguments, half)
        if ran.killed is not None:
            self.teller.say(
                f"After {ran.charged_then:,} charges, `kill -9 {ran.killed}` hit one of them in the middle."
            )
        elif self.kill:
            self.checks.append(Check("a worker was killed half way", False, "they were done before"))
        done = ran.ran.answer
        self.teller.say(
            f"{done['succeeded']:,} jobs succeeded and {done['retried']:,} attempts failed in {ran.seconds:.1f} s, by "
            "the workers' own count (the killed one's last words are lost)."
        )
        return ran.killed

    def _incidents(self, found: Audit) -> None:
        self.teller.step("What went wrong on the way, by the log.")
        incidents = found.incidents
        answers = [
            "tried again with the same key",
            "asked the gateway first, and it was done",
            "read again, and not charged again",
            "nobody noticed: the bug below",
            "taken over by the other process",
        ]
        jobs = [incidents.refused, incidents.found_done, incidents.conflicts, incidents.stale_reads, incidents.lost]
        rows = [
            (name, count, _plainest(ids, incidents.lost), answer)
            for (name, count), ids, answer in zip(incidents.counts().items(), jobs, answers, strict=True)
        ]
        self.teller.table(("incident", "orders", "for example", "what became of it"), rows, numbers=(1,))
        if incidents.found_done:
            self._doubt(_plainest(incidents.found_done, incidents.lost))

    def _doubt(self, job_id: str) -> None:
        events = self._rewindq("A retry that would have charged twice.", "trace", job_id).answer["events"]
        effects = {e["step"] for e in events if e["type"] == "EffectInDoubt"}
        self._events([e for e in events if e["step"] in effects or e["type"].startswith("Attempt")])

    def _events(self, events: Sequence[dict[str, Any]]) -> None:
        rows = [(e["position"], e["attempt"], e["type"], e["step"], _said(e)) for e in events]
        self.teller.table(("position", "attempt", "event", "step", ""), rows, numbers=(1,))

    # --- the wrong balance ----------------------------------------------------------------------------------------

    def _wrong_balance(self, found: Audit) -> Suspect:
        self.teller.step("Is everybody's account right?")
        self.teller.say(
            f"The money is: {found.spent:,} USD on the accounts. The points of {len(found.accounts):,} of "
            f"{found.customers:,} customers are not."
        )
        suspect = find_suspect(found, self.orders)
        if suspect is None:
            raise NothingFound("no order met the bug this time; run the demo again, with more --orders")
        customer = suspect.order.customer_id
        self.teller.say(
            f"Customer {customer} has {suspect.balance:,} points; by the file, {suspect.balance_due:,} are due."
        )
        history = self._rewindq("Who wrote that?", "state", f"customer/{customer}", "--history").answer
        rows = [
            (v["version"], v["job_id"], v["changes"].get("points"), suspect.dues.get(v["version"]))
            for v in history["versions"]
        ]
        self.teller.table(("version", "written by", "points", "due"), rows, numbers=(0, 2, 3))
        found_all = [row[0] for row in rows] == list(suspect.dues)
        self._check(Check("its history has every version", found_all, f"{len(rows)} versions"))
        return suspect

    def _trace(self, suspect: Suspect) -> None:
        job_id = suspect.order.job_id
        events = self._rewindq(f"What did {job_id} do?", "trace", job_id).answer["events"]
        self._events(events)
        read = [e for e in events if e["type"] == "CacheRead" and e["body"].get("hit")][-1]
        load = next(e for e in events if e["type"] == "StepCompleted" and e["attempt"] == read["attempt"])
        self.teller.say(
            f"It read version {load['resource_version']} of the account, and then took the points from a cache "
            f"that still had version {read['body']['version']}."
        )

    # --- the past, opened -----------------------------------------------------------------------------------------

    def _dry_run(self, suspect: Suspect) -> Ran:
        ran = self._rewindq(
            "Does the same code do the same again? (dry-run: every answer from the trace, the outside world shut)",
            "replay", suspect.order.job_id, "--mode", "dry-run",
        )  # fmt: skip
        divergences = ran.answer["divergences"]
        self._check(
            Check("the dry-run takes the same path", not divergences, f"{len(divergences)} divergences"),
            Check("and ends the same way", ran.answer["outcome"] == "succeeded", str(ran.answer["outcome"])),
        )
        return ran

    def _fork(self, suspect: Suspect) -> Ran:
        ran = self._rewindq(
            "What would the mended code have done? (fork: a branch of the past from just before the bad step)",
            "fork", suspect.order.job_id, "--before", suspect.cache_step, "--app", FIXED_APP, "--name", BRANCH,
        )  # fmt: skip
        self.teller.say(f"The branch {BRANCH} leaves at {ran.answer['base']}; its outcome: {ran.answer['outcome']}.")
        return ran

    def _diff(self, suspect: Suspect) -> None:
        order = suspect.order
        ran = self._rewindq("The two side by side.", "diff", order.job_id, "--branch", BRANCH)
        rows = [(row["key"], row["field"], row["original"], row["fork"]) for row in ran.answer["state"]]
        self.teller.table(("aggregate", "field", "original", "fork"), rows, numbers=(2, 3))
        due = suspect.due
        expected = [(order.key, "points", suspect.points, due)]
        self._check(Check("only the points differ, and they are right", rows == expected, f"{due:,} were due then"))

    def _fingerprint(self) -> str:
        return fingerprint(self.place.folder, self.place.settings)

    def _verify(self, before: str) -> Ran:
        ran = self._rewindq("Is the log sound, and did production stay as it was?", "verify")
        answer = ran.answer
        same = answer["digest"] == answer["rebuilt_digest"]
        self._check(
            Check(
                "verify finds no violation", bool(answer["ok"]), f"{answer['jobs']:,} jobs, {answer['events']:,} events"
            ),
            Check("rebuilt from nothing, the state has the same digest", same, answer["digest"][:12]),
            Check(
                "replay and fork changed nothing",
                self._fingerprint() == before,
                "topics, offsets and ledgers are as before",
            ),
        )
        return ran

    def _totals(self, found: Audit) -> None:
        self.teller.step("The totals.")
        self._check(*found.checks)

    def _next(self, suspect: Suspect, seconds: float) -> None:
        self.teller.step(f"What to type next (this took {seconds:g} s; nothing was sent to any network):")
        order = suspect.order
        commands = [
            f"cd {shlex.quote(self.place.typed)}",
            typed(["jobs", "list", "--limit", "10"]),
            typed(["jobs", "show", order.job_id]),
            typed(["state", f"customer/{order.customer_id}", "--version", "1"]),
            typed(["branch", "list"]),
            typed(["branch", "delete", BRANCH, "--yes"]),
        ]
        for command in commands:
            self.teller.say(f"$ {command}")


def _plainest(job_ids: set[str], lost: set[str]) -> str:
    """A job to show: one whose worker lived, if there is one."""
    return min(job_ids - lost or job_ids, default="")


def _said(event: dict[str, Any]) -> str:
    """What matters of an event, in a few words."""
    body = event["body"]
    kind = event["type"]
    if kind == "CacheRead":
        return f"{body['value']} points of version {body['version']}" if body["hit"] else "miss"
    if kind == "StepCompleted" and event.get("resource_version") is not None:
        return f"version {event['resource_version']}"
    if kind == "StateChanged":
        return f"points {body['changes'].get('points')}"
    if kind == "WriteConflict":
        return f"expected version {body['expected']}, found {body['current']}"
    if kind in ("EffectFailed", "EffectInDoubt"):
        return str(body["reason"])
    if kind == "EffectSucceeded":
        return f"{body['answer']}" + (" (by lookup)" if body["evidence"] == "lookup" else "")
    if kind == "EffectSkipped":
        return f"{body['answer']}, as recorded"
    return ""
