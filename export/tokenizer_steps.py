"""Normalizers, pre-tokenizers and post-processors of tokenizer.json, as the engine's few steps.

The engine knows a handful of text steps (engine_cpp/tokenizer/text_step.h); everything that
tokenizer.json can name is written in these here. What cannot be is refused by name.
"""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, normalizers

from pinfer.export.errors import ExportError
from pinfer.export.tokenizer_normal_forms import NormalFormTables, map_code_points
from pinfer.export.tokenizer_patterns import (
    UnsupportedPattern,
    class_program,
    compile_pattern,
    literal_program,
    runs_program,
)
from pinfer.export.tokenizer_precompiled import precompiled_step
from pinfer.export.tokenizer_unicode import (
    CharClasses,
    digit_members,
    probed_code_points,
    punctuation_members,
    space_members,
    word_members,
)

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

Step = dict[str, Any]
Component = dict[str, Any]


class StepCompiler:
    """Compiles the components of one tokenizer; collects classes and tables on the way."""

    def __init__(self) -> None:
        self.classes = CharClasses()
        self.tables = NormalFormTables(self.classes)

    # -- patterns

    def pattern(self, pattern: dict[str, str]) -> Step:
        """{"String": text} or {"Regex": text} as a program. An empty one matches everywhere."""
        if "String" in pattern:
            return {"program": literal_program(pattern["String"])}
        regex = pattern["Regex"]
        try:
            return {"program": compile_pattern(regex, self.classes)}
        except UnsupportedPattern:
            Regex(regex)  # raises for what the reference refuses, too
            return {"regex": regex}

    def space_class(self) -> int:
        return self.classes.add("whitespace", space_members)

    def word_class(self) -> int:
        """What counts as a letter of a word for Whitespace and for added tokens."""
        return self.classes.add("word", word_members)

    def other_class(self) -> int:
        word, space = self.word_class(), self.space_class()
        members = self.classes.members
        return self.classes.add("neither word nor space", lambda: ~members(word) & ~members(space))

    def punctuation_class(self) -> int:
        return self.classes.add("punctuation", punctuation_members)

    # -- normalizers

    def normalizer(self, component: Component | None) -> list[Step]:
        """The steps of a normalizer, in the canonical form that the wheel writes."""
        if component is None:
            return []
        kind = component["type"]
        if kind == "Sequence":
            return [step for part in component["normalizers"] for step in self.normalizer(part)]
        if kind in ("NFC", "NFD", "NFKC", "NFKD"):
            return [self.tables.unicode_step(kind)]
        if kind == "Replace":
            return [self.replace(component)]
        if kind == "Prepend":
            return [{"step": "prepend", "text": component["prepend"], "when": "always"}]
        if kind == "ByteLevel":
            return [{"step": "byte_map"}]
        if kind == "Lowercase":
            return [self.char_map("Lowercase", normalizers.Lowercase())]
        if kind == "StripAccents":
            return [self.char_map("StripAccents", normalizers.StripAccents())]
        if kind == "Nmt":
            return [self.char_map("Nmt", normalizers.Nmt(), separator="0")]
        if kind == "Strip":
            left, right = component["strip_left"], component["strip_right"]
            return [{"step": "strip", "class": self.space_class(), "left": left, "right": right}]
        if kind == "BertNormalizer":
            return self.bert_normalizer(component)
        if kind == "Precompiled":
            return [precompiled_step(component, self.classes, self.tables)]
        raise ExportError(f"tokenizer.json: normalizer type '{kind}' is not supported")

    def char_map(
        self, name: str, normalizer: normalizers.Normalizer, separator: str = "\n"
    ) -> Step:
        return self.tables.char_map_step(name, map_code_points(normalizer, separator))

    def bert_normalizer(self, component: Component) -> list[Step]:
        """Its parts in the reference's order, each asked of the wheel by itself."""

        def only(name: str) -> normalizers.BertNormalizer:
            names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
            return normalizers.BertNormalizer(**{other: other == name for other in names})

        steps: list[Step] = []
        for name in ("clean_text", "handle_chinese_chars"):
            if component[name]:
                steps.append(self.char_map(f"Bert {name}", only(name), separator="0"))
        strips = component["strip_accents"]
        if component["lowercase"] if strips is None else strips:
            removed = map_code_points(only("strip_accents"))
            decomposed = map_code_points(normalizers.NFD())
            marks = {p: text for p, text in removed.items() if p not in decomposed}
            steps.append(self.tables.unicode_step("NFD"))
            steps.append(self.tables.char_map_step("Bert marks", marks))
        if component["lowercase"]:
            steps.append(self.char_map("Lowercase", normalizers.Lowercase()))
        return steps

    @staticmethod
    def check_insertions(normalizer: Component | None, pre_tokenizer: Component | None) -> None:
        """Refuses text that a Replace writes before the first character if a later step works on
        characters of the original text: to the reference it stands for none of them, and is
        repeated, or the reference fails."""
        parts = _parts(normalizer, "normalizers")
        pre_tokenizers = _parts(pre_tokenizer, "pretokenizers")
        byte_levels = [part["type"] for part in pre_tokenizers if part["type"] == "ByteLevel"]
        for index, part in enumerate(parts):
            if part["type"] != "Replace":
                continue
            kinds = [later["type"] for later in parts[index + 1 :]]
            follows = [kind for kind in kinds if kind not in ("Replace", "Prepend")] + byte_levels
            if follows and _inserts_at_start(part):
                raise ExportError(
                    f"tokenizer.json: normalizer Replace of {part['pattern']}: it writes text"
                    f" before the first character, and {follows[0]} stands behind it (not"
                    " supported: the reference repeats such text, or fails)"
                )

    def replace(self, component: Component) -> Step:
        pattern = self.pattern(component["pattern"])
        return {"step": "replace", "pattern": pattern, "content": component["content"]}

    # -- pre-tokenizers

    def pre_tokenizer(self, component: Component | None) -> list[Step]:
        """The steps of a pre-tokenizer."""
        if component is None:
            return []
        kind = component["type"]
        if kind == "Sequence":
            parts = component["pretokenizers"]
            return [step for part in parts for step in self.pre_tokenizer(part)]
        if kind == "Split":
            pattern = self.pattern(component["pattern"])
            return [self.split(pattern, component["behavior"], component["invert"])]
        if kind == "ByteLevel":
            return self.byte_level(component)
        if kind == "Digits":
            behavior = "Isolated" if component["individual_digits"] else "Contiguous"
            bit = self.classes.add("digits", digit_members)
            return [self.split({"program": class_program(bit)}, behavior)]
        if kind == "Metaspace":
            return self.metaspace(component)
        if kind in ("Whitespace", "WhitespaceSplit", "Punctuation", "BertPreTokenizer"):
            return self.word_splits(component)
        if kind == "CharDelimiterSplit":
            return [self.split({"program": literal_program(component["delimiter"])}, "Removed")]
        if kind == "FixedLength":
            return [self.fixed_length(component["length"])]
        raise ExportError(f"tokenizer.json: pre_tokenizer type '{kind}' is not supported")

    def metaspace(self, component: Component) -> list[Step]:
        replacement = component["replacement"]
        spaces = {"program": literal_program(" ")}
        steps: list[Step] = [{"step": "replace", "pattern": spaces, "content": replacement}]
        scheme = component["prepend_scheme"]
        if scheme != "never":
            when = "at_start" if scheme == "first" else "unless_present"
            steps.append({"step": "prepend", "text": replacement, "when": when})
        if component["split"]:
            pattern = {"program": literal_program(replacement)}
            steps.append(self.split(pattern, "MergedWithNext"))
        return steps

    def word_splits(self, component: Component) -> list[Step]:
        kind = component["type"]
        spaces = {"program": class_program(self.space_class())}
        if kind == "WhitespaceSplit":
            return [self.split(spaces, "Removed")]
        if kind == "Whitespace":
            word, other = self.word_class(), self.other_class()
            return [self.split({"program": runs_program([word, other])}, "Removed", invert=True)]
        punctuation = {"program": class_program(self.punctuation_class())}
        if kind == "Punctuation":
            return [self.split(punctuation, component["behavior"])]
        return [self.split(spaces, "Removed"), self.split(punctuation, "Isolated")]

    def fixed_length(self, length: int) -> Step:
        everything = self.classes.regex(r"[\s\S]")
        return self.split({"program": class_program(everything, 1, length)}, "Isolated")

    @staticmethod
    def split(pattern: Step, behavior: str, invert: bool = False) -> Step:
        return {"step": "split", "pattern": pattern, "behavior": behavior, "invert": invert}

    def byte_level(self, component: Component) -> list[Step]:
        steps: list[Step] = []
        if component["add_prefix_space"]:
            steps.append({"step": "prepend", "text": " ", "when": "unless_present"})
        if component["use_regex"]:
            program = compile_pattern(GPT2_PATTERN, self.classes)
            steps.append(self.split({"program": program}, "Isolated"))
        return [*steps, {"step": "byte_map"}]


def _parts(component: Component | None, key: str) -> list[Component]:
    """The parts of a component's sequences, in order."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [part for inner in component[key] for part in _parts(inner, key)]


_MARK = "\U0010fffd"


def _inserts_at_start(replace: Component) -> bool:
    """Whether a Replace can match nothing before some character that begins a text."""
    if not replace["content"]:
        return False
    pattern = replace["pattern"]
    wanted = pattern["String"] if "String" in pattern else Regex(pattern["Regex"])
    marks = normalizers.Replace(wanted, _MARK)
    for point in probed_code_points():
        text = chr(point) + "a"
        if marks.normalize_str(text).startswith(_MARK + text[0]):
            return True
    return False


def post_processor_ids(component: Component | None) -> tuple[list[int], list[int]]:
    """The ids that add_special_tokens puts before and after a single text."""
    if component is None or component["type"] == "ByteLevel":
        return [], []
    kind = component["type"]
    if kind == "Sequence":
        # To a second one that adds tokens, the reference hands the first one's as a pair of texts.
        parts = [part for part in _flatten(component) if part["type"] != "ByteLevel"]
        if len(parts) > 1:
            names = ", ".join(part["type"] for part in parts)
            raise ExportError(
                "tokenizer.json: post_processor Sequence: expected one processor that adds tokens,"
                f" found {len(parts)} ({names}; not supported)"
            )
        return post_processor_ids(parts[0] if parts else None)
    if kind in ("BertProcessing", "RobertaProcessing"):
        return [component["cls"][1]], [component["sep"][1]]
    if kind == "TemplateProcessing":
        return _template_ids(component)
    raise ExportError(f"tokenizer.json: post_processor type '{kind}' is not supported")


def _flatten(component: Component) -> list[Component]:
    if component["type"] != "Sequence":
        return [component]
    return [part for inner in component["processors"] for part in _flatten(inner)]


def _template_ids(component: Component) -> tuple[list[int], list[int]]:
    before: list[int] = []
    after: list[int] = []
    num_sequences = 0
    for piece in component["single"]:
        if "Sequence" in piece:
            num_sequences += 1
            continue
        name = piece["SpecialToken"]["id"]
        token = component["special_tokens"].get(name)
        if token is None:
            raise ExportError(
                f"tokenizer.json: post_processor.single: {name!r} is not in special_tokens"
            )
        (after if num_sequences else before).extend(token["ids"])
    if num_sequences != 1:
        raise ExportError(
            "tokenizer.json: post_processor.single: expected the text once, "
            f"found it {num_sequences} times"
        )
    return before, after
