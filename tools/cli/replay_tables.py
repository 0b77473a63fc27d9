"""Replays, forks and diffs for people."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

#: Longest text of a cell, but of what went wrong and of a branch's own facts.
_CELL_MAX = 60
_WHOLE = frozenset({"reason", "is"})
_STYLES = {"succeeded": "green", "same": "green", "failed": "red", "blocked": "red", "diverged": "yellow"}


def _text(field: str, value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    whole = len(text) <= _CELL_MAX or field in _WHOLE
    return escape(text if whole else text[: _CELL_MAX - 1] + "…")


def _word(word: str) -> str:
    style = _STYLES.get(word)
    return f"[{style}]{escape(word)}[/{style}]" if style else escape(word)


def _table(title: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> Table | None:
    """A table of some fields: `columns` maps headings to fields."""
    if not rows:
        return None
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", title_style="bold")
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for row in rows:
        marked = "" if row.get("same", True) else "yellow"
        table.add_row(*(_text(field, row.get(field)) for field in columns.values()), style=marked)
    return table


def _print(console: Console, *parts: str | Table | None) -> None:
    for part in parts:
        if part is not None:
            console.print(part)


def _head(shown: dict[str, Any]) -> str:
    return (
        f"{escape(shown['job_id'])} attempt {shown['attempt']} ({shown.get('mode', 'fork')}): {_word(shown['outcome'])}"
    )


def _reason(shown: dict[str, Any]) -> str | None:
    where = f" at step {escape(shown['failed_step'])}" if shown.get("failed_step") else ""
    reason = shown.get("reason")
    return f"  {escape(reason)}{where}" if reason else None


def trace(console: Console, shown: dict[str, Any]) -> None:
    """A trace replay."""
    _print(
        console,
        _head(shown),
        _reason(shown) or (None if shown["ends_here"] is None else f"  {escape(shown['ends_here'])}"),
        _table(
            "steps",
            shown["steps"],
            {"step": "step", "kind": "kind", "status": "status", "position": "position"},
        ),
        _table(
            "leases",
            shown["leases"],
            {"resource": "resource", "token": "token", "from": "from", "to": "to", "end": "end"},
        ),
        _table("in doubt", shown["in_doubt"], {"step": "step", "key": "key", "reason": "reason"}),
        _table(
            "attempts",
            shown["attempts"],
            {"n": "attempt", "outcome": "outcome", "failed": "failed_step", "reason": "reason"},
        )
        if len(shown["attempts"]) > 1
        else None,
    )


def dry_run(console: Console, shown: dict[str, Any]) -> None:
    """A dry-run."""
    code = shown["code_version"]
    _print(
        console,
        f"{_head(shown)}, {_word(shown['status'])}",
        _reason(shown),
        f"  code recorded {code['recorded'] or '-'}, ran {code['ran'] or '-'}",
        _violations(shown),
        _divergences(shown),
    )


def _violations(shown: dict[str, Any]) -> Table | None:
    columns = {"refused": "event", "argument": "argument", "where": "place"}
    return _table("around ctx", shown["violations"], columns)


def _divergences(shown: dict[str, Any]) -> Table | None:
    rows = [
        {**one, "step": one["step"] if one["occurrence"] == 1 else f"{one['step']}#{one['occurrence']}"}
        for one in shown["divergences"]
    ]
    return _table("divergences", rows, {"kind": "kind", "step": "step", "expected": "expected", "got": "got"})


def fork(console: Console, shown: dict[str, Any]) -> None:
    """A fork, its divergences and its diff."""
    where = f"  branch {escape(str(shown['branch']))} from {shown['base']}"
    _print(console, _head(shown), _reason(shown), where, _violations(shown), _divergences(shown))
    if shown["diff"] is not None:
        diff(console, shown["diff"])
        job, branch = escape(shown["job_id"]), shown["branch"]
        _print(console, f"next: rewindq diff {job} --branch {branch}   or: rewindq branch delete {branch}")


def diff(console: Console, shown: dict[str, Any]) -> None:
    """Two executions side by side."""
    first, second = shown["outcome"]
    verdict = "[green]the same[/green]" if shown["same"] else "[yellow]different[/yellow]"
    sides = {"original": "original", "fork": "fork"}
    _print(
        console,
        f"original {_word(first)}, fork {_word(second)}: {verdict}",
        _table("state", shown["state"], {"key": "key", "field": "field", **sides}),
        _table("steps", shown["steps"], {"step": "step", "kind": "kind", **sides}),
        _table("decisions", [row for row in shown["decisions"] if not row["same"]], {"step": "step", **sides}),
        _table("effects", shown["effects"], {"effect": "name", "key": "key", **sides}),
    )


def branch_list(console: Console, found: list[dict[str, Any]]) -> None:
    """All branches."""
    rows = [{**one, "job": one["origin"]["job_id"]} for one in found]
    columns = {
        "branch": "name",
        "base": "base",
        "job": "job",
        "status": "status",
        "outcome": "outcome",
        "created": "created",
    }
    _print(console, _table("", rows, columns) or "no branches")


def branch(console: Console, shown: dict[str, Any]) -> None:
    """One branch."""
    origin = shown["origin"]
    rows = [
        {"what": "parent", "is": f"{shown['parent']} up to {shown['base']}"},
        {"what": "origin", "is": f"{origin['job_id']} attempt {origin['attempt']}"},
        {"what": "code", "is": f"{shown['app']} {shown['code_version'] or ''}"},
        {"what": "status", "is": f"{shown['status']}, {shown['outcome'] or 'no outcome'}"},
        {"what": "events", "is": f"{shown['events']}, divergences {shown['divergences']}"},
        {"what": "group", "is": shown["group"]},
        *(
            {"what": "topic", "is": f"{name} {at['low']}..{at['end']}"}
            for name, at in shown["stands"]["topics"].items()
        ),
        *({"what": "offset", "is": f"{name} at {at}"} for name, at in shown["stands"]["offsets"].items()),
    ]
    _print(console, _table(f"branch {escape(shown['name'])}", rows, {"": "what", " ": "is"}))


def deleted(console: Console, shown: dict[str, Any]) -> None:
    """A deletion."""
    _print(
        console, f"deleted branch {escape(shown['deleted'])} with {', '.join(shown['topics'])}, its group and its state"
    )
