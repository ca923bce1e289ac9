"""Start and decode of a bundle, as a user meets them: whole processes, prompt of 32 tokens.

Usage: start_bench.py PINFER BUNDLE [--runs N] [--threads N]

Prints medians and spread of what `pinfer run --stats` says, and of the time from launch to the
first byte on stdout, measured from outside; and from launch of `pinfer serve` to its first healthy
answer. Checks that all runs give the same ids.
"""

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import time

PROMPT = (
    "The old lighthouse keeper walked down to the shore every morning to look at the sea, and"
    " one day he found a small wooden box in the wet sand."
)
NUM_PROMPT_TOKENS = 32
FIELDS = ("load_ms", "prefill_ms", "first_token_ms", "decode_tokens_per_s", "peak_rss_mb")


def prompt_of_32_tokens(pinfer, bundle):
    """A prompt that the bundle's tokenizer makes NUM_PROMPT_TOKENS tokens of, if words allow it."""
    words = PROMPT.split(" ")
    for count in range(len(words), 0, -1):
        text = " ".join(words[:count])
        result = subprocess.run(
            [pinfer, "tokenize", bundle], input=json.dumps(text), capture_output=True, text=True
        )
        if len(json.loads(result.stdout)["ids"]) <= NUM_PROMPT_TOKENS:
            return text
    raise SystemExit("no prompt of 32 tokens or fewer")


def run(pinfer, bundle, prompt, threads, tokens):
    command = [pinfer, "run", bundle, "-p", prompt, "-n", str(tokens), "--temperature", "0",
               "--ignore-eos", "--ids", "--stats", "--threads", str(threads)]  # fmt: skip
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        first = process.stdout.read(1)
        first_ms = (time.perf_counter() - started) * 1000
        rest, error = process.communicate()
    if process.returncode != 0:
        raise SystemExit(error.decode())
    stats = json.loads(error.decode().strip().splitlines()[-1])
    stats["launch_to_first_byte_ms"] = first_ms
    return (first + rest).decode(), stats


def serve_to_healthy_ms(pinfer, bundle, threads):
    """From launch to the first 200 of /health, asked every millisecond."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [pinfer, "serve", bundle, "--port", str(port), "--threads", str(threads)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    elapsed_ms = (time.perf_counter() - started) * 1000
                    process.terminate()
                    return elapsed_ms
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.001)
    raise SystemExit(f"pinfer serve ended with {process.returncode}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pinfer")
    parser.add_argument("bundle")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    arguments = parser.parse_args()
    prompt = prompt_of_32_tokens(arguments.pinfer, arguments.bundle)
    results, answers = [], set()
    for i in range(arguments.runs + 1):
        text, stats = run(
            arguments.pinfer, arguments.bundle, prompt, arguments.threads, arguments.tokens
        )
        answers.add(text)
        if i > 0:  # the first run warms the page cache
            pinfer, bundle = arguments.pinfer, arguments.bundle
            stats["serve_to_healthy_ms"] = serve_to_healthy_ms(pinfer, bundle, arguments.threads)
            results.append(stats)
    if len(answers) != 1:
        raise SystemExit("the runs gave different ids")
    print(f"prompt {results[0]['prompt_tokens']} tokens, {arguments.tokens} generated, "
          f"{arguments.runs} runs, load {open('/proc/loadavg').read().split()[0]}")  # fmt: skip
    for field in ("launch_to_first_byte_ms", "serve_to_healthy_ms", *FIELDS):
        values = sorted(stats[field] for stats in results)
        print(f"{field:<26}median {statistics.median(values):9.2f}   "
              f"min {values[0]:9.2f}   max {values[-1]:9.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
