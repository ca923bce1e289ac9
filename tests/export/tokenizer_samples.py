"""Small tokenizers that between them use every component of tokenizer.json."""

import json
from functools import cache

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXT = (
    "The quick brown fox jumps over the lazy dog. It's 2024, isn't it? We've 12345 reasons! "
    "Größe naïve été straße; Привет мир, 日本語 天气 한국어 नमस्ते. don't do not can't, he 's . "
    "def f(x): return x + 1\n\n  if a >= b:\n\tprint('hello world')  # ok\r\n"
) * 4

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
SPECIALS = [
    ("<s>", {"special": True}),
    ("</s>", {"special": True, "rstrip": True}),
    ("<unk>", {"special": True}),
    ("<mask>", {"special": True, "lstrip": True}),
    ("[single]", {"single_word": True}),
    ("Ünorm", {"normalized": True}),
    ("  ", {"normalized": False}),
    ("both sides", {"lstrip": True, "rstrip": True, "normalized": True}),
]


@cache
def _trained(kind: str) -> str:
    """The model part of a tokenizer trained on TEXT."""
    trainer_options = {"vocab_size": 400, "special_tokens": ["<unk>"], "show_progress": False}
    if kind == "byte_level":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **trainer_options)
    elif kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(limit_alphabet=60, **trainer_options)
    elif kind == "bpe_affixes":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.BpeTrainer(
            continuing_subword_prefix="##", end_of_word_suffix="</w>", **trainer_options
        )
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **trainer_options)
    elif kind == "word_piece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(**trainer_options)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(**trainer_options)
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    return json.dumps(json.loads(tokenizer.to_str())["model"])


def model(kind: str, **changes) -> dict:
    """A trained model with some fields changed."""
    return {**json.loads(_trained(kind)), **changes}


def with_byte_tokens(part: dict) -> dict:
    """The same model with tokens for single bytes, <0x00> to <0xFF>."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    if isinstance(part["vocab"], list):
        return {**part, "vocab": part["vocab"] + [[name, -20.0] for name in names]}
    vocab = dict(part["vocab"])
    for name in names:
        vocab[name] = len(vocab)
    return {**part, "vocab": vocab}


def tokenizer_json(model_part: dict, added=SPECIALS, **parts) -> dict:
    """A whole tokenizer.json; `parts` are normalizer, pre_tokenizer, post_processor, decoder."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    vocab = model_part["vocab"]
    names = [token for token, _ in vocab] if isinstance(vocab, list) else list(vocab)
    entries = []
    next_id = len(names)
    for content, changes in added:
        if content in names:
            token_id = names.index(content) if isinstance(vocab, list) else vocab[content]
        else:
            token_id, next_id = next_id, next_id + 1
        entry = {"id": token_id, "content": content, **flags, "special": False, **changes}
        entries.append(entry)
    result = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": entries}
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        result[name] = parts.get(name)
    return {**result, "model": model_part}


def sequence(key: str, *components: dict) -> dict:
    return {"type": "Sequence", key: list(components)}


def split(pattern: dict, behavior: str, invert: bool = False) -> dict:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def metaspace(scheme: str, do_split: bool = True) -> dict:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": do_split}


def replace(pattern: dict, content: str) -> dict:
    return {"type": "Replace", "pattern": pattern, "content": content}


def template(*pieces: str) -> dict:
    """TemplateProcessing; '$A' is the text, the rest special tokens (ids are filled in later)."""
    single = [
        {"Sequence": {"id": "A", "type_id": 0}}
        if piece == "$A"
        else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in pieces
    ]
    special = {p: {"id": p, "ids": [7], "tokens": [p]} for p in pieces if p != "$A"}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single,
        "special_tokens": special,
    }


SPACE = {"String": " "}
SENTENCEPIECE_DECODER = sequence(
    "decoders",
    replace({"String": "▁"}, " "),
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
REGEX = {"Regex": r"\d+|[aeiou]{2,}|\s"}


def component_samples() -> dict[str, dict]:
    """Every component, each in a tokenizer.json of its own."""
    byte_level = model("byte_level")
    bpe, unigram = model("bpe"), model("unigram")
    samples = {
        "byte_level": tokenizer_json(byte_level, pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL),
        "byte_level prefix space": tokenizer_json(
            byte_level, pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True}, decoder=BYTE_LEVEL
        ),
        "byte_level normalizer": tokenizer_json(
            byte_level,
            normalizer={"type": "ByteLevel"},
            pre_tokenizer=split({"Regex": "Ġ?[a-z]+"}, "Isolated"),
            decoder=BYTE_LEVEL,
        ),
        "byte_level without alphabet": tokenizer_json(
            model("word_level", type="WordLevel"), pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL
        ),
        "ignore_merges": tokenizer_json(
            {**byte_level, "ignore_merges": True, "merges": byte_level["merges"][:50]},
            pre_tokenizer=BYTE_LEVEL,
            decoder=BYTE_LEVEL,
        ),
        "digits": tokenizer_json(
            byte_level,
            pre_tokenizer=sequence(
                "pretokenizers", {"type": "Digits", "individual_digits": True}, BYTE_LEVEL
            ),
            decoder=BYTE_LEVEL,
        ),
        "digits contiguous": tokenizer_json(
            bpe, pre_tokenizer={"type": "Digits", "individual_digits": False}
        ),
        "byte_fallback": tokenizer_json(
            with_byte_tokens({**bpe, "byte_fallback": True, "fuse_unk": True}),
            normalizer=sequence(
                "normalizers", {"type": "Prepend", "prepend": "▁"}, replace(SPACE, "▁")
            ),
            decoder=SENTENCEPIECE_DECODER,
        ),
        "fuse_unk": tokenizer_json({**bpe, "fuse_unk": True}, pre_tokenizer=metaspace("always")),
        "unk": tokenizer_json(bpe, pre_tokenizer=metaspace("always")),
        "no unk": tokenizer_json({**bpe, "unk_token": None}, pre_tokenizer=metaspace("always")),
        "unk not in vocabulary": tokenizer_json(
            {**bpe, "unk_token": "<missing>"}, pre_tokenizer=metaspace("always")
        ),
        "affixes": tokenizer_json(model("bpe_affixes"), pre_tokenizer={"type": "Whitespace"}),
        "unigram": tokenizer_json(
            unigram, pre_tokenizer=metaspace("always"), decoder=metaspace("always")
        ),
        "unigram byte_fallback": tokenizer_json(
            with_byte_tokens({**unigram, "byte_fallback": True}),
            pre_tokenizer=metaspace("first", do_split=False),
            decoder=SENTENCEPIECE_DECODER,
        ),
        "unigram no unk": tokenizer_json(
            {**unigram, "unk_id": None},
            pre_tokenizer=metaspace("never"),
            decoder=metaspace("never"),
        ),
        "word_piece": tokenizer_json(
            model("word_piece", max_input_chars_per_word=12),
            normalizer={**BERT, "strip_accents": None, "lowercase": True},
            pre_tokenizer={"type": "BertPreTokenizer"},
            post_processor={"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]},
            decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        ),
        "word_level": tokenizer_json(model("word_level"), pre_tokenizer={"type": "Whitespace"}),
        "roberta": tokenizer_json(
            byte_level,
            pre_tokenizer=BYTE_LEVEL,
            post_processor={
                "type": "RobertaProcessing",
                "sep": ["</s>", 1],
                "cls": ["<s>", 2],
                "trim_offsets": True,
                "add_prefix_space": True,
            },
            decoder=BYTE_LEVEL,
        ),
        "template": tokenizer_json(
            bpe, pre_tokenizer=metaspace("first"), post_processor=template("<s>", "$A", "</s>")
        ),
        "post-processor sequence": tokenizer_json(
            bpe,
            pre_tokenizer=metaspace("first"),
            post_processor=sequence("processors", BYTE_LEVEL, template("<s>", "$A", "</s>", "<s>")),
        ),
        "truncation and padding": {
            **tokenizer_json(bpe, pre_tokenizer=metaspace("first")),
            "truncation": {
                "direction": "Right",
                "max_length": 3,
                "strategy": "LongestFirst",
                "stride": 0,
            },
            "padding": {
                "strategy": {"Fixed": 64},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "<unk>",
            },
        },
    }
    samples |= _normalizer_samples(bpe)
    samples |= _pre_tokenizer_samples(bpe)
    samples |= _decoder_samples(bpe)
    return samples


def _normalizer_samples(bpe: dict) -> dict[str, dict]:
    normalizers = {form: {"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD")}
    normalizers |= {name: {"type": name} for name in ("Lowercase", "StripAccents", "Nmt")}
    normalizers |= {
        "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
        "Strip left": {"type": "Strip", "strip_left": True, "strip_right": False},
        "Strip right": {"type": "Strip", "strip_left": False, "strip_right": True},
        "Prepend": {"type": "Prepend", "prepend": "▁x"},
        "Replace": replace({"String": "''"}, '"'),
        "Replace regex": replace({"Regex": r"\s{2,}|o(?=w)"}, "<>"),
        "Replace by nothing": replace({"Regex": "[a-c]"}, ""),
        "Bert cased": {**BERT, "strip_accents": None, "lowercase": False},
        "Bert accents kept": {**BERT, "strip_accents": False, "lowercase": True},
        "Bert accents only": {
            "type": "BertNormalizer",
            "clean_text": False,
            "handle_chinese_chars": False,
            "strip_accents": True,
            "lowercase": False,
        },
        "sequence": sequence(
            "normalizers",
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "NFC"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
        ),
    }
    inserts = {
        "Replace nothing": replace({"String": ""}, "_"),
        "Replace what may be nothing": replace({"Regex": "x*|o+"}, "_"),
        "Replace at the start": replace({"Regex": r"^|\b"}, "▁t"),
        # What the input begins with is gone, and text stands there that no character stands for.
        "Replace where a character was": sequence(
            "normalizers",
            {"type": "NFD"},
            {"type": "Strip", "strip_left": True, "strip_right": False},
            replace({"Regex": "^.."}, "a"),
            replace({"Regex": "(?=a)"}, "o"),
            {"type": "Prepend", "prepend": "th"},
        ),
    }
    samples = {
        f"normalizer {name} {scheme}": tokenizer_json(
            bpe, normalizer=part, pre_tokenizer=metaspace(scheme, scheme == "never")
        )
        for name, part in inserts.items()
        for scheme in ("never", "first")
    }
    return samples | {
        f"normalizer {name}": tokenizer_json(
            bpe, normalizer=part, pre_tokenizer=metaspace("first"), decoder=metaspace("first")
        )
        for name, part in normalizers.items()
    }


def _pre_tokenizer_samples(bpe: dict) -> dict[str, dict]:
    behaviors = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    parts = {}
    for behavior in behaviors:
        parts[f"Punctuation {behavior}"] = {"type": "Punctuation", "behavior": behavior}
        for invert in (False, True):
            parts[f"Split {behavior} {invert}"] = split(REGEX, behavior, invert)
            parts[f"Split text {behavior} {invert}"] = split({"String": "the"}, behavior, invert)
        parts[f"Split nothing {behavior}"] = split({"String": ""}, behavior)
    for scheme in ("first", "never", "always"):
        for do_split in (False, True):
            parts[f"Metaspace {scheme} {do_split}"] = metaspace(scheme, do_split)
    parts |= {
        name: {"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")
    }
    parts |= {
        "CharDelimiterSplit": {"type": "CharDelimiterSplit", "delimiter": "o"},
        "FixedLength": {"type": "FixedLength", "length": 3},
        "words then metaspace": sequence(
            "pretokenizers", {"type": "WhitespaceSplit"}, metaspace("first")
        ),
        # Constructs outside the compiled patterns: Oniguruma runs them.
        "look-behind": split({"Regex": r"(?<=[a-z])[A-Z]|([0-9])\1+"}, "MergedWithNext"),
        "loop over alternatives": split({"Regex": r"(?:ab?|o)+"}, "Isolated"),
        "case folding": split({"Regex": r"(?i:ss)|(?i)ok"}, "Isolated"),
        "lazy, possessive, atomic": split(
            {"Regex": r"o{1,3}+|e*+l|t.*?e|(?>ab|a)c|\p{N}{2,}?|(?:x|y)?+z"}, "Isolated"
        ),
        "assertions": split({"Regex": r"^T|\.$|\bwe|\Ba\B|\A |\n\z"}, "Isolated"),
        "fixed loops": split({"Regex": r"\d{1,3}(?=(?:\d{3})*\b)|(?:ab){2}"}, "Isolated"),
        "legacy metaspace": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
    }
    return {
        f"pre_tokenizer {name}": tokenizer_json(bpe, pre_tokenizer=part)
        for name, part in parts.items()
    }


def _decoder_samples(bpe: dict) -> dict[str, dict]:
    strip = {"type": "Strip", "content": "e", "start": 2, "stop": 0}
    chains = {
        "none": None,
        "fuse": {"type": "Fuse"},
        "byte_fallback": {"type": "ByteFallback"},
        "replace regex": replace({"Regex": "[aeiou]+"}, "_"),
        "replace after fuse": sequence("decoders", {"type": "Fuse"}, replace({"String": "▁"}, " ")),
        "metaspace never": metaspace("never"),
        "metaspace after fuse": sequence("decoders", {"type": "Fuse"}, metaspace("always")),
        "word_piece": {"type": "WordPiece", "prefix": "##", "cleanup": False},
        "word_piece clean": sequence(
            "decoders", {"type": "WordPiece", "prefix": "t", "cleanup": True}, {"type": "Fuse"}
        ),
        "strip": strip,
        "strip at the end": {"type": "Strip", "content": "e", "start": 0, "stop": 1},
        "replace nothing": replace({"String": ""}, "_"),
        "fuse twice": sequence("decoders", SENTENCEPIECE_DECODER, {"type": "Fuse"}),
        "byte level then fuse": sequence("decoders", BYTE_LEVEL, {"type": "Fuse"}),
        "byte level then replace": sequence(
            "decoders", BYTE_LEVEL, {"type": "Fuse"}, replace({"String": "e"}, "é")
        ),
        "fuse, replace, strip": sequence(
            "decoders",
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            replace({"String": "▁"}, " "),
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ),
        "replace of two after fuse": sequence(
            "decoders", {"type": "Fuse"}, replace({"String": "▁t"}, " T")
        ),
        "word_piece then byte level": sequence(
            "decoders", {"type": "WordPiece", "prefix": "##", "cleanup": True}, BYTE_LEVEL
        ),
        "replace then byte level": sequence(
            "decoders", replace({"String": "▁"}, "Ġ"), {**BYTE_LEVEL, "type": "ByteLevel"}
        ),
        "metaspace then byte level": sequence("decoders", metaspace("always"), BYTE_LEVEL),
        "sentencepiece": SENTENCEPIECE_DECODER,
    }
    part = with_byte_tokens({**bpe, "byte_fallback": True})
    return {
        f"decoder {name}": tokenizer_json(part, pre_tokenizer=metaspace("first"), decoder=chain)
        for name, chain in chains.items()
    }
