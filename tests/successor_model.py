"""Tiny Llama checkpoints whose greedy answers are chosen: chains of tokens, or constant logits.

The one layer adds nothing (o_proj and down_proj are zero), embeddings of tokens in a chain are
orthogonal, and row j of the head is the sum of the embeddings of all tokens that j follows. So the
right token leads every other by LOGIT, and a test knows each answer to the byte.
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tiny_models
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pinfer.export.config import ExportConfig
from pinfer.export.exporter import export

HIDDEN = tiny_models.BASE["hidden_size"]
VOCAB = tiny_models.BASE["vocab_size"]
# float32 rows of length HIDDEN ** 0.5 behind the final norm, but for its epsilon.
NORM = (1 / HIDDEN + tiny_models.BASE["rms_norm_eps"]) ** -0.5
LOGIT = 32.0
SPECIAL = ("<unk>", "<s>", "</s>")
END = 2  # </s>


# ---- tokenizers ----


def byte_alphabet() -> dict[int, str]:
    """The character that stands for each byte in byte-level vocabularies."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return {byte: chr(byte if byte in kept else next(others)) for byte in range(256)}


def byte_level(extra: Sequence[bytes] = (), added: Sequence[str] = ()) -> Tokenizer:
    """Byte-level BPE without merges: `extra` tokens are never encoded, but may be generated.
    `added` are found in texts, as chat templates' marks are, but are not special."""
    alphabet = byte_alphabet()
    vocabulary = {token: i for i, token in enumerate(SPECIAL)}
    for token in (*(bytes([byte]) for byte in range(256)), *extra):
        vocabulary["".join(alphabet[byte] for byte in token)] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_added(tokenizer, added)


def token_bytes(tokenizer: Tokenizer) -> dict[int, bytes]:
    """What each token of a byte-level tokenizer stands for, special ones aside."""
    bytes_of = {character: byte for byte, character in byte_alphabet().items()}
    return {
        token_id: bytes(bytes_of[character] for character in token)
        for token, token_id in tokenizer.get_vocab(with_added_tokens=False).items()
        if token not in SPECIAL
    }


def byte_fallback(extra: Sequence[str] = (), kind: str = "llama") -> Tokenizer:
    """SentencePiece's way: pieces with ▁, and a token for each byte. `kind`: where the space before
    a text comes from, a normalizer as in Llama 2, or Metaspace as in Mistral's newer files."""
    vocabulary = {token: i for i, token in enumerate(SPECIAL)}
    for token in (*(f"<0x{byte:02X}>" for byte in range(256)), *extra):
        vocabulary[token] = len(vocabulary)
    model = models.BPE(
        vocab=vocabulary, merges=[], unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if kind == "llama":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([*chain, decoders.Strip(" ", 1, 0)])
    return _with_added(tokenizer, ())


def _with_added(tokenizer: Tokenizer, added: Sequence[str]) -> Tokenizer:
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    assert tokenizer.get_vocab_size() <= VOCAB
    return tokenizer


def token_ids(tokenizer: Tokenizer, chain: Iterable[str | bytes | int]) -> list[int]:
    """Ids of a chain that is written in tokens: bytes of a byte-level one, texts, or ids."""
    alphabet = byte_alphabet()
    ids = []
    for token in chain:
        if isinstance(token, bytes):
            token = "".join(alphabet[byte] for byte in token)
        found = token if isinstance(token, int) else tokenizer.token_to_id(token)
        assert found is not None, f"{token!r} is no token"
        ids.append(found)
    return ids


# ---- checkpoints ----


def make_successor(
    folder: Path, tokenizer: Tokenizer, chains: Iterable[Sequence[int]], **files: Mapping | str
) -> Path:
    """A checkpoint that goes through each chain of ids, whose first id is the prompt's last. Tokens
    that nothing follows are followed by id 0. `files` as in _write()."""
    following: dict[int, int] = {}
    for chain in chains:
        for token, successor in itertools.pairwise(chain):
            assert following.setdefault(token, successor) == successor, f"{token} has a successor"
    assert len(following) <= HIDDEN, "more tokens than orthogonal embeddings"
    embedding = torch.zeros(VOCAB, HIDDEN)
    head = torch.zeros(VOCAB, HIDDEN)
    for i, (token, successor) in enumerate(following.items()):
        embedding[token, i] = 1
        head[successor, i] = LOGIT / NORM
    return _write(folder, tokenizer, embedding, head, **files)


def make_fixed_logits(
    folder: Path, tokenizer: Tokenizer, logits: Mapping[int, float], **files: Mapping | str
) -> Path:
    """A checkpoint with these logits at every position, 0 for the other ids."""
    embedding = torch.zeros(VOCAB, HIDDEN)
    embedding[:, 0] = 1
    head = torch.zeros(VOCAB, HIDDEN)
    for token, logit in logits.items():
        head[token, 0] = logit / NORM
    return _write(folder, tokenizer, embedding, head, **files)


def _write(
    folder: Path,
    tokenizer: Tokenizer,
    embedding: torch.Tensor,
    head: torch.Tensor,
    config: Mapping | None = None,
    tokenizer_config: Mapping | None = None,
    generation_config: Mapping | None = None,
    chat_template: str | None = None,
) -> Path:
    """`config` and `tokenizer_config` change the usual ones; the others are files of their own."""
    folder.mkdir(parents=True)
    base = tiny_models.BASE
    inner = base["intermediate_size"]
    generator = torch.Generator().manual_seed(0)
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    tensors["model.norm.weight"] = torch.ones(HIDDEN)
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.0.{name}.weight"] = torch.ones(HIDDEN)
    shapes = {f"self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"}
    shapes |= {"mlp.gate_proj": (inner, HIDDEN), "mlp.up_proj": (inner, HIDDEN)}
    shapes |= {"mlp.down_proj": (HIDDEN, inner)}
    for name, shape in shapes.items():
        adds_nothing = name.endswith(("o_proj", "down_proj"))
        value = torch.zeros(shape) if adds_nothing else torch.randn(shape, generator=generator)
        tensors[f"model.layers.0.{name}.weight"] = value
    save_file(tensors, folder / "model.safetensors")
    files = {
        "config.json": {
            **base, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "num_hidden_layers": 1, "tie_word_embeddings": False, **(config or {}),
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            **(tokenizer_config or {}),
        },
        "generation_config.json": generation_config,
    }  # fmt: skip
    for name, content in files.items():
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template)
    return folder


# ---- bundles ----


class BundleMaker:
    """Exports such checkpoints within this process. All have one shape: the first export compiles
    and checks what the others find in the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plain = Tokenizer.from_str(tiny_models.tokenizer_json())
        self._export(make_successor(folder / "plain", plain, []), verify=True)

    def successor(self, name: str, tokenizer: Tokenizer, chains: Iterable, **files) -> Path:
        """The bundle of a checkpoint of this name; `chains` as token_ids() takes them."""
        ids = [token_ids(tokenizer, chain) for chain in chains]
        return self._export(make_successor(self.folder / name, tokenizer, ids, **files))

    def fixed_logits(self, name: str, tokenizer: Tokenizer, logits: Mapping, **files) -> Path:
        return self._export(make_fixed_logits(self.folder / name, tokenizer, logits, **files))

    def _export(self, checkpoint: Path, verify: bool = False) -> Path:
        output = checkpoint.with_name(f"{checkpoint.name}-bundle")
        export(ExportConfig(model=checkpoint, output=output, verify=verify), lambda *_: None)
        return output
