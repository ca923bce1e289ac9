"""add_bos_token and add_eos_token of tokenizer_config.json."""

import json

import pytest
from tokenizer_fixtures import byte_fallback, byte_level
from tokenizers import Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_config import with_bos_eos_settings

NAMES = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}


def tokens(data: dict, text: str = "a") -> list[str]:
    return Tokenizer.from_str(json.dumps(data)).encode(text).tokens


def test_without_settings_the_post_processor_stays():
    assert with_bos_eos_settings(byte_fallback(), NAMES) == byte_fallback()


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_settings_rule_over_the_post_processor(make):
    """tok-bos-once: one <s> where it is asked for, none where it is not."""
    data = make()
    word = tokens({**data, "post_processor": None})
    for settings, expected in (
        ({"add_bos_token": False}, word),
        ({"add_bos_token": True}, ["<s>", *word]),
        ({"add_eos_token": True}, [*word, "</s>"]),
        ({"add_bos_token": True, "add_eos_token": True}, ["<s>", *word, "</s>"]),
    ):
        assert tokens(with_bos_eos_settings(data, {**NAMES, **settings})) == expected


def test_without_a_bos_token_none_is_added():
    data = byte_level()
    settings = {"add_bos_token": True, "bos_token": None}
    assert tokens(with_bos_eos_settings(data, settings)) == ["a"]


def test_an_unknown_token_is_named():
    with pytest.raises(ExportError, match=r"bos_token.*<nowhere>"):
        with_bos_eos_settings(byte_level(), {"add_bos_token": True, "bos_token": "<nowhere>"})
