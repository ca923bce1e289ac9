"""The small tokenizers of the C++ tests. `python tests/export/tokenizer_fixtures.py` writes them
to tests/data/tokenizer; test_tokenizer_fixtures.py compares the files with what is written here.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tokenizer_samples import (
    BYTE_LEVEL,
    SENTENCEPIECE_DECODER,
    metaspace,
    replace,
    sequence,
    split,
    template,
    tokenizer_json,
)

from pinfer.export.tokenizer_decoder import byte_alphabet
from pinfer.export.tokenizer_tables import compile_tokenizer

FOLDER = Path(__file__).parents[1] / "data" / "tokenizer"
SPECIAL = [("<s>", {"special": True}), ("</s>", {"special": True}), ("<tool>", {})]


def bpe(vocab: list[str], merges: list[str], **fields) -> dict:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {token: token_id for token_id, token in enumerate(dict.fromkeys(vocab))},
        "merges": [merge.split(" ") for merge in merges],
        **fields,
    }


def byte_level() -> dict:
    """Bytes, a few merges, an emoji whose four bytes come in two tokens."""
    emoji = [byte_alphabet()[byte] for byte in "🦙".encode()]
    merges = [
        "h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "a a", "aa aa",
        f"{emoji[0]} {emoji[1]}", f"{emoji[2]} {emoji[3]}", f"Ġ {emoji[0]}",
    ]  # fmt: skip
    vocab = [*byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    words = split({"Regex": " ?[A-Za-z]+|[0-9]{1,3}| ?[^A-Za-z0-9 ]+| +"}, "Isolated")
    pre_tokenizer = sequence("pretokenizers", words, {**BYTE_LEVEL, "use_regex": False})
    return tokenizer_json(
        bpe(vocab, merges), SPECIAL, pre_tokenizer=pre_tokenizer, decoder=BYTE_LEVEL
    )


def ignore_merges() -> dict:
    """The word 'word' is in the vocabulary, but no merges lead to it."""
    sample = byte_level()
    vocab = {**sample["model"]["vocab"], "word": len(sample["model"]["vocab"])}
    sample["model"] = {**sample["model"], "vocab": vocab, "ignore_merges": True}
    for entry in sample["added_tokens"]:
        entry["id"] += 1
    return sample


def byte_fallback() -> dict:
    """SentencePiece's way: a space in front, bytes for what is not in the vocabulary."""
    merges = ["▁ a", "▁ t", "i m", "▁t im", "▁tim e", "▁ u", "p o", "▁u po", "▁upo n", "▁ O",
              "n c", "▁O nc", "▁Onc e"]  # fmt: skip
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyzO.", "é"]
    vocab = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    vocab += [merge.replace(" ", "") for merge in merges]
    prepend = {"type": "Prepend", "prepend": "▁"}
    spaces = replace({"String": " "}, "▁")
    post_processor = template("<s>", "$A")
    sample = tokenizer_json(
        bpe(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        SPECIAL,
        normalizer=sequence("normalizers", prepend, spaces),
        post_processor=post_processor,
        decoder=SENTENCEPIECE_DECODER,
    )
    post_processor["special_tokens"]["<s>"]["ids"] = [sample["added_tokens"][0]["id"]]
    return sample


def unigram() -> dict:
    tokens = [("<unk>", 0.0), ("▁", -3.0), ("a", -4.0), ("b", -4.0), ("ab", -5.0), ("▁ab", -5.5),
              ("aba", -9.0), ("▁a", -6.0)]  # fmt: skip
    part = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [list(t) for t in tokens],
        "byte_fallback": False,
    }
    return tokenizer_json(
        part, SPECIAL, pre_tokenizer=metaspace("first"), decoder=metaspace("first")
    )


def word_piece() -> dict:
    tokens = ["[UNK]", "un", "##aff", "##able", "the", "##s", ",", "!"]
    part = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 20,
        "vocab": {token: token_id for token_id, token in enumerate(tokens)},
    }
    return tokenizer_json(
        part,
        SPECIAL,
        pre_tokenizer={"type": "WhitespaceSplit"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


FIXTURES = {
    "byte_level": byte_level,
    "ignore_merges": ignore_merges,
    "byte_fallback": byte_fallback,
    "unigram": unigram,
    "word_piece": word_piece,
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in FIXTURES.items():
        (FOLDER / f"{name}.bin").write_bytes(compile_tokenizer(make()))


if __name__ == "__main__":
    main()
