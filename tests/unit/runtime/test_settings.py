"""Settings: where they come from, and errors that say which place to mend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rewindq.engine.runtime.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder and no variables."""
    for name in list(os.environ):
        if name.upper().startswith("REWINDQ_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults() -> None:
    assert load_settings().model_dump() == {
        "log": "sqlite:///./.rewindq/log.db",
        "namespace": "rewindq",
        "state_dir": Path(".rewindq/state"),
        "blobs": None,
        "app": None,
        "partitions": 8,
        "schema_registry_url": None,
        "body_limit_bytes": 16384,
        "unknown_type_wait": 600.0,
        "keep_keys": None,
    }


def test_precedence(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, then environment, then file, then default; each place alone decides each setting."""
    (clean / "rewindq.toml").write_text('namespace = "file"\napp = "file:app"\npartitions = 3\nblobs = "file"\n')
    monkeypatch.setenv("REWINDQ_NAMESPACE", "variable")
    monkeypatch.setenv("REWINDQ_PARTITIONS", "4")
    monkeypatch.setenv("REWINDQ_APP", "")
    settings = load_settings(partitions=5, app=None)
    assert (settings.partitions, settings.namespace) == (5, "variable")
    assert (settings.app, settings.blobs, settings.body_limit_bytes) == ("file:app", Path("file"), 16384)
    assert load_settings().partitions == 4


def test_variables_of_all_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {
        "log": "kafka://broker:9092",
        "namespace": "shop",
        "state_dir": Path("/var/lib/s"),
        "blobs": Path("/mnt/b"),
        "app": "shop.jobs:app",
        "partitions": 12,
        "schema_registry_url": "http://registry:8081",
        "body_limit_bytes": 1000,
        "unknown_type_wait": 30.0,
        "keep_keys": 86400.0,
    }
    assert given.keys() == Settings.model_fields.keys()
    for name, value in given.items():
        monkeypatch.setenv(f"REWINDQ_{name.upper()}", str(value))
    assert load_settings().model_dump() == given


def test_empty_variables_count_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDQ_PARTITIONS", "")
    monkeypatch.setenv("REWINDQ_BLOBS", "")
    assert (load_settings().partitions, load_settings().blobs) == (8, None)


def test_only_the_current_folder_is_searched(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clean / "rewindq.toml").write_text('namespace = "parent"\n')
    (clean / "below").mkdir()
    monkeypatch.chdir(clean / "below")
    assert load_settings().namespace == "rewindq"


def test_a_value_that_is_not_used_does_not_fail(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clean / "rewindq.toml").write_text('partitions = "many"\n')
    monkeypatch.setenv("REWINDQ_PARTITIONS", "2")
    assert load_settings().partitions == 2
    monkeypatch.setenv("REWINDQ_PARTITIONS", "few")
    assert load_settings(partitions=1).partitions == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "partition = 4\n",
            ["rewindq.toml, partition:", "no such setting", "partitions", "schema_registry_url"],
        ),
        ("[log]\nurl = 1\n", ["rewindq.toml, log:", "string"]),
        ("partitions = 0\n", ["rewindq.toml, partitions:", "greater than or equal to 1", "got 0"]),
        ("partitions = true\n", ["rewindq.toml, partitions:", "whole number", "got True"]),
        ("partitions = 2.5\n", ["rewindq.toml, partitions:", "integer", "2.5"]),
        ('body_limit_bytes = "x"\n', ["rewindq.toml, body_limit_bytes:", "integer", "'x'"]),
        ('namespace = "a/b"\n', ["rewindq.toml, namespace:", "namespace 'a/b' must be"]),
        ("namespace = 5\n", ["rewindq.toml, namespace:", "string"]),
        ('log = ""\n', ["rewindq.toml, log:", "at least 1 character"]),
        ("namespace = \n", ["rewindq.toml cannot be read", "line 1"]),
        ('namespace = "a"\nnamespace = "b"\n', ["rewindq.toml cannot be read", "line 2"]),
    ],
)
def test_wrong_files(clean: Path, text: str, words: list[str]) -> None:
    (clean / "rewindq.toml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert [word for word in words if word not in str(refused.value)] == []


def test_unreadable_files(clean: Path) -> None:
    (clean / "rewindq.toml").write_bytes(b'namespace = "\xff"')
    with pytest.raises(SettingsError, match=r"rewindq\.toml cannot be read"):
        load_settings()
    (clean / "rewindq.toml").unlink()
    (clean / "rewindq.toml").mkdir()
    with pytest.raises(SettingsError, match=r"rewindq\.toml cannot be read"):
        load_settings()


def test_wrong_variables(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named even where the file has that setting too."""
    (clean / "rewindq.toml").write_text("partitions = 3\n")
    monkeypatch.setenv("REWINDQ_PARTITIONS", "many")
    with pytest.raises(SettingsError, match=r"^REWINDQ_PARTITIONS: .*integer.*'many'"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partitions": 1025}, r"^setting partitions: .*1024.*, got 1025"),
        ({"colour": "red"}, r"^setting colour: no such setting; there are log, namespace"),
        ({"namespace": ""}, r"^setting namespace: namespace '' must be 1 to 160"),
        ({"body_limit_bytes": 255}, r"^setting body_limit_bytes: .*256"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings(**given)


@pytest.mark.parametrize("name", ["schema_registry_url", "log"])
def test_passwords_in_addresses_are_not_repeated(name: str) -> None:
    bad: Any = "htp://me:hunter2@host" if name == "schema_registry_url" else ["kafka://me:hunter2@host"]
    with pytest.raises(SettingsError, match=f"^setting {name}: ") as refused:
        load_settings(**{name: bad})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({}, Path(".rewindq/blobs")),
        ({"log": "sqlite:////srv/q/log.db?lease_ttl=2"}, Path("/srv/q/blobs")),
        ({"log": "sqlite:///my%20logs/log.db"}, Path("my logs/blobs")),
        ({"log": "sqlite:///log.db"}, Path("blobs")),
        ({"log": "kafka://broker:9092"}, None),
        ({"log": "memory:///x"}, None),
        ({"log": "kafka://broker:9092", "blobs": "/mnt/blobs"}, Path("/mnt/blobs")),
        ({"blobs": "/mnt/blobs"}, Path("/mnt/blobs")),
    ],
)
def test_blobs_stand_beside_the_embedded_log(given: dict[str, Any], folder: Path | None) -> None:
    assert load_settings(**given).blobs_folder == folder


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load_settings().log = "kafka://elsewhere:9092"
