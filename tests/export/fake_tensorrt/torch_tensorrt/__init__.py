"""What pinfer uses of torch_tensorrt, with its names, keywords and kind of report. It checks what
it is given as the real one would need it, and takes ATen for what TensorRT knows."""

from torch_tensorrt import dynamo


class Input:
    def __init__(self, *, min_shape, opt_shape, max_shape, dtype, name=""):
        self.shape = {"min_shape": min_shape, "opt_shape": opt_shape, "max_shape": max_shape}
        self.dtype = dtype
        self.name = name


__all__ = ["Input", "dynamo"]
