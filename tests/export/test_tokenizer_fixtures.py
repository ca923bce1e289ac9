"""The committed tokenizers of the C++ tests are what the exporter makes today."""

import pytest
from tokenizer_fixtures import FIXTURES, FOLDER

from pinfer.export.tokenizer_tables import compile_tokenizer


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture_is_up_to_date(name):
    # If this fails after an intended change: python tests/export/tokenizer_fixtures.py
    assert (FOLDER / f"{name}.bin").read_bytes() == compile_tokenizer(FIXTURES[name]())
