"""Only that it is there."""
