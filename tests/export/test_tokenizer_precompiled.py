"""The Precompiled normalizer on character maps made here, engine against reference."""

import base64
import json
import random
import struct

import pytest
from tokenizer_engine import EngineTokenizer
from tokenizer_samples import metaspace, model, tokenizer_json
from tokenizers import Tokenizer

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_tables import compile_tokenizer
from pinfer.export.tokenizer_unicode import probed_code_points

MAPPINGS = {
    "\r": " ", "\n": " ", "\t": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "ﬁ": "fi",
    "①": "1", "½": "1/2", "Ａ": "A", "é": "e", "e\u0301": "E!", "\u0301": "", "a\u0300\u0301": "xy",
    "©": "(c)", "®": "(r)", "ㄱ": "\u1100", "각": "gag", "ᄀ": "g", "\u0600": "P", "ก": "k",
    "क": "ka", "\u200d": "Z", "1": "one", "🇩": "D", "👍": "+", "한": "han", "\u1160": "v",
}  # fmt: skip


def charsmap(mappings: dict[str, str]) -> str:
    """A character map in SentencePiece's format: one block of 256 units per node of the trie."""
    texts = b""
    trie: dict = {}
    for key, text in mappings.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node["value"] = len(texts)
        texts += text.encode() + b"\0"
    units = [0] * 256
    pending = [(0, trie)]  # (index of the unit that leads to the node, the node)
    while pending:
        index, node = pending.pop()
        base = len(units)
        units += [0] * 256
        units[index] |= (index ^ base) << 10
        if "value" in node:
            units[index] |= 1 << 8
            units[base] = node["value"] | 1 << 31
        for byte, child in node.items():
            if byte != "value":
                units[base ^ byte] = byte
                pending.append((base ^ byte, child))
    data = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts
    return base64.b64encode(data).decode()


def sample(charsmap_text: str) -> dict:
    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap_text}
    return tokenizer_json(model("unigram"), normalizer=normalizer, pre_tokenizer=metaspace("first"))


def test_precompiled(tmp_path):
    data = sample(charsmap(MAPPINGS))
    reference = Tokenizer.from_str(json.dumps(data))
    engine = EngineTokenizer(compile_tokenizer(data), tmp_path)
    # Marks, joiners and syllable parts between mapped characters: what decides about clusters.
    joining = [
        "\u0300",
        "\u0308",
        "\u0903",
        "\u094d",
        "\ufe0f",
        "\u1161",
        "\u11a8",
        "\u0e31",
        "\r\n",
    ]
    rng = random.Random(1)
    letters = [*MAPPINGS, *joining, "a", "e", "ß", "漢", "🇫", "❤"]
    texts = ["".join(rng.choices(letters, k=rng.randrange(1, 9))) for _ in range(4000)]
    points = rng.sample(probed_code_points(), 4000)
    texts += [f"é{chr(p)}\u0301 ①{chr(p)} {chr(p)}©" for p in points]
    expected = [encoding.ids for encoding in reference.encode_batch(texts)]
    for text, ids, ours in zip(texts, expected, engine.encode(texts), strict=True):
        assert ours == ids, ascii(text)


@pytest.mark.parametrize("text", ["", "AAA", "////", base64.b64encode(b"\x10\0\0\0abc").decode()])
def test_bad_charsmap_is_refused(text):
    with pytest.raises(ExportError, match=r"tokenizer\.json"):
        compile_tokenizer(sample(text))
