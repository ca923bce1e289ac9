"""Serving throughput of OpenAI-compatible servers over the same weights, side by side.

    server_compare.py [--rounds 5] NAME=URL NAME=URL ...

Three loads, each of prompts of 128 tokens with 64 tokens of output, greedy, streamed: 8 at once;
32 in a closed loop of 8; 32 at once. Every round runs every load on every server, one after the
other; the table has medians of the rounds: output tokens per second, and the time to the first
token (p50, p95). Start the servers with the same number of threads before. A server that gives
fewer tokens than were asked for fails the run.
"""

import argparse
import json
import os
import random
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book"
).split()
PROMPT_WORDS, OUTPUT_TOKENS = 122, 64
LOADS = {"8 at once": (8, 8), "32, 8 at a time": (32, 8), "32 at once": (32, 32)}


def prompt_of(numbers: random.Random) -> str:
    """Text of about 128 tokens, no two alike from their first words on."""
    return " ".join(numbers.choice(WORDS) for _ in range(PROMPT_WORDS))


class Server:
    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, url.rstrip("/")
        # A connection for each request: servers close those that are kept, each after a time of its
        # own, while a request is on its way.
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=0)
        self.client = httpx.Client(base_url=self.url, timeout=600, limits=limits)
        self.model = self.client.get("/v1/models").json()["data"][0]["id"]

    def ask(self, prompt: str) -> float:
        """Seconds to the first token."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": OUTPUT_TOKENS,
                "temperature": 0, "ignore_eos": True, "stream": True, "cache_prompt": False,
                "stream_options": {"include_usage": True}}  # fmt: skip
        begin, first, count = time.perf_counter(), None, 0
        with self.client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if first is None and event["choices"] and event["choices"][0]["text"]:
                    first = time.perf_counter() - begin
                count = (event.get("usage") or {}).get("completion_tokens", count)
        assert count == OUTPUT_TOKENS, f"{self.name}: {count} tokens instead of {OUTPUT_TOKENS}"
        assert first is not None
        return first

    def run(self, num_requests: int, at_a_time: int, seed: int) -> tuple[float, list[float]]:
        """Output tokens per second, seconds to each first token."""
        numbers = random.Random(seed)
        prompts = [prompt_of(numbers) for _ in range(num_requests)]
        barrier = threading.Barrier(at_a_time)

        def ask(i: int) -> float:
            if i < at_a_time:
                barrier.wait()
            return self.ask(prompts[i])

        begin = time.perf_counter()
        with ThreadPoolExecutor(at_a_time) as pool:
            firsts = list(pool.map(ask, range(num_requests)))
        seconds = time.perf_counter() - begin
        return num_requests * OUTPUT_TOKENS / seconds, firsts


def steal() -> tuple[int, int]:
    """Jiffies taken by the host, and all of them."""
    with open("/proc/stat") as stat:
        values = [int(word) for word in stat.readline().split()[1:]]
    return values[7], sum(values[:8])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    arguments = parser.parse_args()
    servers = [Server(*text.split("=", 1)) for text in arguments.servers]
    for server in servers:
        server.run(8, 8, seed=0)  # warm
    before = steal()
    found: dict[tuple[str, str], list[tuple[float, list[float]]]] = {}
    for i in range(arguments.rounds):
        for j, (load, (num_requests, at_a_time)) in enumerate(LOADS.items()):
            for server in servers:
                # No prompt twice: a prefix cache would spare its prefill.
                result = server.run(num_requests, at_a_time, seed=1 + i * len(LOADS) + j)
                found.setdefault((load, server.name), []).append(result)
    after = steal()
    print("| load | server | output tok/s (spread) | first token p50, p95, s |")
    print("| --- | --- | --- | --- |")
    for (load, name), results in found.items():
        rates = [rate for rate, _ in results]
        firsts = sorted(first for _, firsts in results for first in firsts)
        p95 = firsts[min(len(firsts) - 1, int(len(firsts) * 0.95))]
        print(
            f"| {load} | {name} | {statistics.median(rates):.0f} ({min(rates):.0f} to "
            f"{max(rates):.0f}) | {statistics.median(firsts):.2f}, {p95:.2f} |"
        )
    stolen = (after[0] - before[0]) / max(1, after[1] - before[1])
    print(f"\nload {os.getloadavg()[0]:.1f}, stolen {100 * stolen:.1f} %")


if __name__ == "__main__":
    main()
