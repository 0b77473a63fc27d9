"""What a payload's model marks secret shows up nowhere, and masking breaks nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.values import values as any_value

from rewindq.engine.core import values
from rewindq.engine.core.secrets import MASK, masked, scrub, scrub_text, secret_texts

PAYLOAD: dict[str, Any] = {
    "id": 7,
    "pin": 1234,
    "none": None,
    "card": {"number": "4111", "name": "Ann"},
    "keys": [{"token": "t-1"}, {"token": "t-2"}, {"other": 1}],
}
PATHS = ("pin", "none", "card.number", "keys.token", "absent.path", "id.deeper")


def test_marked_paths_are_masked_and_all_else_stays() -> None:
    assert masked(PAYLOAD, PATHS) == {
        "id": 7,
        "pin": MASK,
        "none": MASK,
        "card": {"number": MASK, "name": "Ann"},
        "keys": [{"token": MASK}, {"token": MASK}, {"other": 1}],
    }
    assert PAYLOAD["pin"] == 1234


def test_the_secrets_of_a_payload_are_found_as_texts() -> None:
    assert sorted(secret_texts(values.encode(PAYLOAD), PATHS)) == ["1234", "4111", "t-1", "t-2"]


def test_all_that_a_secret_holds_is_secret() -> None:
    assert sorted(secret_texts(values.encode(PAYLOAD), ("card", "keys"))) == ["1", "4111", "Ann", "t-1", "t-2"]


@pytest.mark.parametrize("secret", ["", None])
def test_an_empty_secret_masks_nothing(secret: str | None) -> None:
    assert secret_texts(values.encode({"pin": secret}), ("pin",)) == []
    assert scrub_text("None of it", []) == "None of it"
    assert scrub(b'{"a":"None"}', []) == b'{"a":"None"}'


def test_texts_are_scrubbed_wherever_they_stand() -> None:
    data = values.encode({"note": "card 4111 of Ann", "4111": ["4111", {"x": "4111"}], "n": 4111, "m": 41110})

    assert values.decode(scrub(data, ["4111"])) == {
        "note": f"card {MASK} of Ann",
        MASK: [MASK, {"x": MASK}],
        "n": MASK,
        "m": 41110,
    }
    assert scrub_text("no card 4111!", ["4111"]) == f"no card {MASK}!"


@pytest.mark.parametrize("secrets", [["abc", "abcdef"], ["abcdef", "abc"]])
def test_a_secret_that_begins_with_another_leaves_no_rest(secrets: list[str]) -> None:
    assert scrub_text("it is abcdef and abc", secrets) == f"it is {MASK} and {MASK}"
    assert values.decode(scrub(values.encode("abcdef"), secrets)) == MASK


def test_a_mask_is_not_masked_again() -> None:
    assert scrub_text("a*b", ["a", "*"]) == f"{MASK}{MASK}b"


@pytest.mark.parametrize("secret", ['quo"te', "back\\slash", "new\nline", "ünï", "(", "[a-z]+"])
def test_secrets_that_json_or_patterns_would_escape(secret: str) -> None:
    data = values.encode({"note": f"<{secret}>"})

    assert values.decode(scrub(data, [secret])) == {"note": f"<{MASK}>"}
    assert scrub_text(f"<{secret}>", [secret]) == f"<{MASK}>"


@given(
    value=any_value, secrets=st.lists(st.sampled_from(["1", "a", "$", "2026", "e", '"', "null", "decimal"]), max_size=3)
)
def test_what_was_scrubbed_is_still_a_value(value: Any, secrets: list[str]) -> None:
    data = values.encode(value)
    scrubbed = scrub(data, secrets)

    assert values.encode(values.decode(scrubbed)) == scrubbed
    if not secrets:
        assert scrubbed == data


@given(
    secret=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), around=st.text("xyz", max_size=3)
)
def test_no_text_keeps_its_secret(secret: str, around: str) -> None:
    if secret in MASK:
        return
    scrubbed = values.decode(scrub(values.encode([f"{around}{secret}{around}"]), [secret]))

    assert not any(secret in part for part in scrubbed[0].split(MASK))
