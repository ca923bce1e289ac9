"""pinfer: language models compiled ahead of time, served from a C++ engine.

`pinfer.Engine` opens a bundle and generates; it needs no torch. The exporter is the command
`pinfer-export` (module pinfer.export).
"""

from pinfer.runtime.binding.engine import Engine, Error, Generation, Output, TokenLogprobs

__all__ = ["Engine", "Error", "Generation", "Output", "TokenLogprobs"]
