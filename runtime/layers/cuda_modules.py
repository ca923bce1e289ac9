"""The parts of a model as CUDA runs them: those of modules.py over the ops of cuda_ops.py."""

from __future__ import annotations

from torch import Tensor

from pinfer.runtime import cuda_ops
from pinfer.runtime.cuda_weight_format import CudaWeightFormat
from pinfer.runtime.layers.layer_spec import HeadSpec, LayerSpec
from pinfer.runtime.layers.modules import DecoderLayer, Head


class CudaDecoderLayer(DecoderLayer):
    """REQUIRES a layer without experts."""

    def __init__(self, spec: LayerSpec, weights: CudaWeightFormat) -> None:
        assert not spec.num_experts
        super().__init__(spec, weights)
        self._format = weights

    def _linear(self, name: str, x: Tensor, out_features: int) -> Tensor:
        return _linear(self, self._format, name, x, out_features)

    def _attend(
        self, h: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, *step: Tensor
    ) -> Tensor:
        spec = self.spec
        q, k, v = self._qkv(h)
        return cuda_ops.rotary_attention(
            q,
            k,
            v.view(-1, spec.num_kv_heads, spec.head_dim),
            cos,
            sin,
            k_cache,
            v_cache,
            *step,
            spec.rotary_dim,
            spec.attention_scale,
            spec.sliding_window,
            spec.attention_softcap,
        )


class CudaHead(Head):
    def __init__(self, spec: HeadSpec, weights: CudaWeightFormat) -> None:
        super().__init__(spec, weights)
        self._format = weights

    def _linear(self, name: str, x: Tensor, out_features: int) -> Tensor:
        return _linear(self, self._format, name, x, out_features)


def _linear(
    part: DecoderLayer | Head, format: CudaWeightFormat, name: str, x: Tensor, out_features: int
) -> Tensor:
    weight, bias = getattr(part, f"{name}_weight"), getattr(part, f"{name}_bias", None)
    y = cuda_ops.linear(x, weight, format.code, format.group_size, out_features)
    return y if bias is None else y + bias
