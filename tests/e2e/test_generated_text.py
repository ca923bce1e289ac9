"""Text of generated tokens to the byte: characters over token borders, cut ends, leading spaces."""

import codecs

import pytest
import successor_model
from every_way import EveryWay
from successor_model import END
from tokenizers import Tokenizer

# Chains by the prompt's last letter, in tokens of the byte-level vocabulary.
BYTE_CHAINS = {
    "a": [b"\xf0", b"\x9f", b"\xa6", b"\x99", b" a!"],  # 🦙, a byte each
    "b": [b"\xf0\x9f", b"\xa6\x99", b"B"],
    "c": [  # woman, skin tone, joiner, computer
        b"\xf0\x9f\x91", b"\xa9\xf0", b"\x9f\x8f", b"\xbd\xe2\x80", b"\x8d\xf0\x9f", b"\x92",
        b"\xbb",
    ],
    "d": [b"\xec", b"\x82\xbc\xea", b"\xb2", b"\xb9\xec\x82", b"\xb4"],  # 삼겹살
    "e": [b"\xe2", b" ok"],  # a lead byte that nothing continues
    "f": [b"\xc3", b"\xf0\x9f\xa6", b"\x99!"],  # the same, before a character
    "g": [b"\x80", b"g."],  # a byte that begins no character
    "h": [b"X", b"Y", b"\xf0\x9f\x98", b"\x80Z"],
}  # fmt: skip
BYTE_TEXTS = {
    "a": "🦙 a!", "b": "🦙B", "c": "👩🏽‍💻", "d": "삼겹살", "e": "\ufffd ok", "f": "\ufffd🦙!",
    "g": "\ufffdg.", "h": "XY😀Z",
}  # fmt: skip
# The same over pieces and byte tokens.
PIECES = ["▁", *"Oncghijk", "e", "▁upon", "▁a", "▁time", "▁ok", "👩", "🏽", "💻"]


def byte_pieces(data):
    return [f"<0x{byte:02X}>" for byte in data]


PIECE_CHAINS = {
    "e": ["▁upon", "▁a", "▁time"],
    "g": byte_pieces("🦙".encode()),
    "h": ["👩", "🏽", *byte_pieces("\u200d".encode()), "💻"],
    "i": byte_pieces("삼겹".encode()),
    "j": ["<0xC3>", "▁ok"],
    "k": byte_pieces("©".encode() + b"\xd0"),
}
PIECE_TEXTS = {
    "e": " upon a time", "g": "🦙", "h": "👩🏽‍💻", "i": "삼겹", "j": "\ufffd ok", "k": "©\ufffd",
}  # fmt: skip


@pytest.fixture(scope="module")
def byte_level():
    tokens = [token for chain in BYTE_CHAINS.values() for token in chain if len(token) > 1]
    return successor_model.byte_level(tokens)


@pytest.fixture(scope="module")
def byte_level_ways(pinfer, bundles, byte_level):
    chains = [[letter, *chain, END] for letter, chain in BYTE_CHAINS.items()]
    with EveryWay(pinfer, bundles.successor("byte-level", byte_level, chains)) as ways:
        yield ways


@pytest.fixture(scope="module", params=["llama", "metaspace"])
def pieces(request, pinfer, bundles):
    """(reference tokenizer, every way) of both kinds of SentencePiece files."""
    tokenizer = successor_model.byte_fallback(PIECES, request.param)
    chains = [[letter, *chain, END] for letter, chain in PIECE_CHAINS.items()]
    chains.append(["<s>", "▁upon"])
    template = "{{ messages[0].content }}<s>"
    name = f"pieces-{request.param}"
    path = bundles.successor(name, tokenizer, chains, chat_template=template)
    with EveryWay(pinfer, path) as ways:
        yield tokenizer, ways


def new_text(tokenizer: Tokenizer, prompt_ids, ids):
    """What the reference adds to the prompt's text."""
    before = tokenizer.decode(prompt_ids)
    whole = tokenizer.decode(prompt_ids + ids)
    assert whole.startswith(before)
    return whole[len(before) :]


# ---- tok-split-char-stream ----


@pytest.mark.parametrize("letter", BYTE_CHAINS)
def test_characters_over_token_borders(byte_level_ways, byte_level, letter):
    answer = byte_level_ways.ask(f"go {letter}")
    expected = successor_model.token_ids(byte_level, [*BYTE_CHAINS[letter], END])
    assert answer.ids == expected and answer.finish_reason == "stop"
    assert answer.text == BYTE_TEXTS[letter] == byte_level.decode(expected)
    assert byte_level_ways.engine.detokenize(expected) == answer.text


@pytest.mark.parametrize("letter", BYTE_CHAINS)
def test_a_stream_holds_back_unfinished_characters_only(byte_level_ways, byte_level, letter):
    """After every piece: all complete characters are there, and marks for bytes that can belong to
    none, as Python's own decoder has it."""
    tokens = successor_model.token_bytes(byte_level)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    expected = found = ""
    for piece in byte_level_ways.engine.stream(f"go {letter}", temperature=0.0, max_tokens=30):
        found += piece.text
        for token_id in piece.token_ids:
            expected += decoder.decode(tokens.get(token_id, b""))
        assert found == expected
    assert found == BYTE_TEXTS[letter]


@pytest.mark.parametrize("letter", PIECE_CHAINS)
def test_byte_pieces(pieces, letter):
    tokenizer, ways = pieces
    answer = ways.ask(f"go {letter}")
    expected = successor_model.token_ids(tokenizer, [*PIECE_CHAINS[letter], END])
    assert answer.ids == expected and answer.finish_reason == "stop"
    assert answer.text == PIECE_TEXTS[letter]
    reference = new_text(tokenizer, ways.engine.tokenize(f"go {letter}"), expected)
    # A stream does not take back a character that it has sent: the one difference.
    assert (answer.text == reference) == (letter != "k")
    if letter == "k":
        assert reference == "\ufffd" * 3 == ways.engine.detokenize(expected)


# ---- tok-cut-inside-char ----


def test_an_end_inside_a_character(byte_level_ways, byte_level):
    answer = byte_level_ways.ask("go h", max_tokens=3)
    assert answer.finish_reason == "length" and len(answer.ids) == 3
    assert answer.text == "XY\ufffd" == byte_level.decode(answer.ids)
    assert byte_level_ways.engine.detokenize(answer.ids) == answer.text
    with_logprobs = byte_level_ways.engine.generate(
        "go h", temperature=0.0, max_tokens=3, logprobs=1
    )
    assert with_logprobs.text == answer.text and len(with_logprobs.logprobs) == 3


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_an_end_inside_a_run_of_byte_pieces(pieces, max_tokens):
    """One mark for each byte, as the reference has it."""
    tokenizer, ways = pieces
    answer = ways.ask("go g", max_tokens=max_tokens)
    assert answer.finish_reason == "length" and len(answer.ids) == max_tokens
    assert answer.text == "\ufffd" * max_tokens
    assert answer.text == new_text(tokenizer, ways.engine.tokenize("go g"), answer.ids)


# ---- tok-leading-space ----


def test_the_first_token_keeps_its_space(pieces):
    tokenizer, ways = pieces
    answer = ways.ask("Once")
    assert answer.text == " upon a time"
    prompt_ids = ways.engine.tokenize("Once")
    assert prompt_ids == tokenizer.encode("Once").ids
    assert answer.text == new_text(tokenizer, prompt_ids, answer.ids)
    one_by_one = [ways.ask("Once", max_tokens=n).text for n in (1, 2, 3)]
    assert one_by_one == [" upon", " upon a", " upon a time"]


def test_an_answer_after_a_special_token_begins_a_text(pieces):
    """A chat template ends in a mark: the reference decodes the answer's ids alone."""
    tokenizer, ways = pieces
    messages = [{"role": "user", "content": "O"}]
    options = {"temperature": 0.0, "max_tokens": 30}
    answer = ways.engine.chat(messages, **options)
    assert answer.text == "upon a time" == tokenizer.decode(answer.token_ids)
    streamed = "".join(piece.text for piece in ways.engine.stream_chat(messages, **options))
    assert streamed == answer.text
    assert ways.run("O", "--chat", **options) == answer.text
    assert ways.batch_lines([{"messages": messages, **options}])[0]["text"] == answer.text
