"""Catching up with an owner that flushes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rewindq.engine.ports.store import StoreDamaged, StoreError
from rewindq.engine.store.reader import catch_up


class Secondary:
    """Stands for a secondary instance whose owner flushes `flushes` times, each while it catches up."""

    def __init__(self, folder: Path, flushes: int) -> None:
        self.folder, self.flushes, self.calls = folder, flushes, 0
        (folder / "CURRENT").write_text("MANIFEST-1\n")
        (folder / "MANIFEST-1").touch()

    def try_catch_up_with_primary(self) -> None:
        self.calls += 1
        if self.calls <= self.flushes:
            with (self.folder / "MANIFEST-1").open("a") as manifest:
                manifest.write("flushed")


@pytest.mark.parametrize("flushes", [0, 1, 5])
def test_it_goes_on_until_nothing_was_flushed_meanwhile(tmp_path: Path, flushes: int) -> None:
    secondary: Any = Secondary(tmp_path, flushes)
    catch_up(secondary, tmp_path)
    assert secondary.calls == flushes + 1


def test_a_new_manifest_counts_as_well(tmp_path: Path) -> None:
    class Rolled(Secondary):
        def try_catch_up_with_primary(self) -> None:
            super().try_catch_up_with_primary()
            if self.calls == 1:
                (self.folder / "CURRENT").write_text("MANIFEST-2\n")  # not there yet
            if self.calls == 3:
                (self.folder / "MANIFEST-2").touch()

    secondary: Any = Rolled(tmp_path, 0)
    catch_up(secondary, tmp_path)
    assert secondary.calls == 4


def test_an_owner_that_never_rests_is_reported(tmp_path: Path) -> None:
    secondary: Any = Secondary(tmp_path, 10**9)
    with pytest.raises(StoreError, match="rewritten faster than it can be read"):
        catch_up(secondary, tmp_path)


def test_missing_files_are_reported_as_damage(tmp_path: Path) -> None:
    class Missing(Secondary):
        def try_catch_up_with_primary(self) -> None:
            raise Exception("IO error: No such file or directory: 000009.sst")

    secondary: Any = Missing(tmp_path, 0)
    with pytest.raises(StoreDamaged, match=r"000009\.sst"):
        catch_up(secondary, tmp_path)
