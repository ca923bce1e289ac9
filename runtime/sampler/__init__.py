"""From logits to the next token. Twin of engine_cpp/sampler."""
