"""Blocks of the KV cache and the prefix cache. Twin of engine_cpp/kv_cache."""
