"""Values that every part of the engine speaks in. Twin of engine_cpp/core."""
