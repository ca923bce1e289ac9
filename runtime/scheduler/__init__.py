"""Which requests compute how many tokens in each step. Twin of engine_cpp/scheduler."""
