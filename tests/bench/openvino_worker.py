"""OpenVINO GenAI for compare.py, run by a Python that has openvino_genai: see worker.py.

MODEL is a directory of OpenVINO's own format, or a GGUF file. Run with openvino_genai 2026.4.1; the
tests have a stand-in for the package (tests/bench/test_compare.py).
"""

import argparse

from worker import Generated, Model, run_worker


class OpenVinoModel(Model):
    def __init__(self, arguments: argparse.Namespace) -> None:
        import numpy as np
        import openvino
        import openvino_genai

        self.tensor_of = lambda ids: openvino.Tensor(np.array([ids], dtype=np.int64))
        self.GenerationConfig = openvino_genai.GenerationConfig
        self.pipeline = openvino_genai.LLMPipeline(
            arguments.model, "CPU", INFERENCE_NUM_THREADS=arguments.threads
        )

    def generate(self, prompt: list[int], output_tokens: int) -> Generated:
        config = self.GenerationConfig()
        config.max_new_tokens = output_tokens
        config.min_new_tokens = output_tokens
        config.ignore_eos = True
        config.do_sample = False
        result = self.pipeline.generate(self.tensor_of(prompt), config)
        metrics, count = result.perf_metrics, len(result.tokens[0])
        decode_s = metrics.get_tpot().mean / 1000 * (count - 1) if count > 1 else 0.0
        return Generated(count, metrics.get_ttft().mean / 1000, decode_s)


if __name__ == "__main__":
    run_worker(OpenVinoModel, argparse.ArgumentParser(description=__doc__))
