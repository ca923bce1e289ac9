"""What transformers generates from the real file of gemma-3-270m, for tests of the exporter and of
the compiled model."""

from functools import cache
from pathlib import Path

import torch
import transformers

NUM_TOKENS = 32  # generated for each prompt
END_ID = 1
PROMPTS = [
    "The capital of France is", "Water boils at", "Once upon a time", "def fibonacci(n):",
    "The three primary colours are", "In 1969, humans", "Roses are red,", "2 + 2 =",
    "A recipe for pancakes:\n\n1.", "Der schnellste Weg nach Berlin", "La vie est",
    "El perro de mi vecino", "日本の首都は", "Москва — столица", "The opposite of hot is",
    "Dear Sir or Madam,", "import numpy as np\n", "SELECT name FROM", "<html>\n<head>",
    "Monday, Tuesday,", "The quick brown fox", "To be or not to be,", "My favourite book is",
    "Photosynthesis is the process", "The largest planet", "A haiku about rain:\n",
    "Q: Who wrote Hamlet?\nA:", "1, 1, 2, 3, 5, 8,", "Shakespeare was born in",
    "🦙 llamas are", "The speed of light is", "x = [1, 2, 3]\nprint(",
]  # fmt: skip


@cache
def their_tokenizer(path: Path):
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@cache
def their_model(path: Path):
    """float32, whatever the file's types are."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@torch.no_grad()
def their_texts(path: Path) -> list[tuple[torch.Tensor, int]]:
    """For each prompt its ids and NUM_TOKENS greedy ones, none of them the end's; and how many the
    prompt has."""
    tokenizer = their_tokenizer(path)
    tokenizer.padding_side = "left"
    batch = tokenizer(PROMPTS, return_tensors="pt", padding=True)
    generated = their_model(path).generate(
        **batch, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False
    )
    masks = batch["attention_mask"]
    return [
        (row[mask.argmax() :], int(mask.sum())) for row, mask in zip(generated, masks, strict=True)
    ]
