"""`rewindq rewind`: sets a stopped processor group's offsets back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from rewindq.engine.ports.log import TopicPartition
from rewindq.engine.runtime.rewinding import EARLIEST, LATEST, plan_rewind, rewind

from .options import Call, command
from .tables import print_table


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "rewind")(rewind_command)


def rewind_command(
    call: Call,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group, for example worker or rewindq.worker.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, a time (the first submission from then on), or an event's position such as p3@7: "
            "partition 3 alone goes back to the submission that was taken in last at or before that event.",
        ),
    ],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", metavar="N", help="Sets this partition alone; may be repeated.")
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="Agrees that the submissions in between are never taken in.")
    ] = False,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="Why; it stays in the log.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Shows what would be set, and sets nothing; a worker may run.")
    ] = False,
) -> None:
    """Sets where a group's partitions go on reading: their next offsets. Refused while the group has members.

    Submissions that are read again are found to be known: no job is made or run twice by it. Going ahead passes
    submissions over for good: it is refused, with their job ids, until you say --skip.

    Example: rewindq rewind worker --to 2026-11-29T12:00:00Z --reason 'catalog was wrong' --dry-run
    """
    if not reason.strip():
        raise typer.BadParameter("--reason must say why: it stays in the log")
    with call.deployment() as deployment:
        planned = plan_rewind(deployment, group, to, partition)
        if not dry_run:
            rewind(deployment, planned, reason, skip=skip)
    shown = {
        "group": planned.group,
        "from": _offsets(planned.before),
        "to": _offsets(planned.after),
        "skipped": list(planned.skipped),
        "lost": _offsets(planned.lost),
        "dry_run": dry_run,
        "members": list(planned.members),
    }
    call.show(shown, lambda console: _print_rewound(console, shown, to))


def _offsets(places: Mapping[TopicPartition, int | None]) -> dict[str, int | None]:
    return {f"{topic}/{partition}": offset for (topic, partition), offset in sorted(places.items())}


def _print_rewound(console: Console, shown: dict[str, Any], to: str) -> None:
    rows = [_row(place, offset, shown["to"][place]) for place, offset in shown["from"].items()]
    print_table(console, ("topic/partition", "from", "to", "by"), rows)
    for place, count in shown["lost"].items():
        console.print(f"{place}: {count} offsets are not in the log any more", markup=False, style="yellow")
    for job_id in shown["skipped"]:
        console.print(f"never taken in: {job_id}", markup=False, style="yellow")
    what = "would be set" if shown["dry_run"] else "is set"
    console.print(f"group {shown['group']} {what}: the next offset of each place; {_meaning(to)}", markup=False)
    if shown["members"]:
        text = (
            f"it runs now ({', '.join(shown['members'])}): its offsets move on, and a rewind is refused until it stops"
        )
        console.print(text, markup=False, style="yellow")


def _row(place: str, before: int | None, after: int) -> tuple[str, int | str, int, int | str]:
    return (place, "none", after, "") if before is None else (place, before, after, after - before)


def _meaning(to: str) -> str:
    if to in (EARLIEST, LATEST):
        return {EARLIEST: "all that is still kept is read again", LATEST: "only what comes from now on is read"}[to]
    if "@" in to:
        return f"{to} stands for the submission that was taken in last at or before this event: it is read again"
    return f"what was submitted from {to} on is read again"
