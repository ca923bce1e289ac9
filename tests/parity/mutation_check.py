"""Breaks one rule of the scheduler at a time and expects a test to fail.

Usage: mutation_check.py   (exit status 1 and one line for every mutation that no test noticed)

Mutations are made in a copy of the Python twin; the tests run are those of the Python engine: unit
tests, scenarios and recorded traces. The C++ twin is held to the same traces, scenarios, and random
workloads.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCHEDULER = "scheduler/scheduler.py"
MANAGER = "kv_cache/kv_cache_manager.py"
POOL = "kv_cache/block_pool.py"
QUEUE = "scheduler/request_queue.py"
SPEC = "core/kv_cache_spec.py"
KV_CONFIG = "core/kv_cache_config.py"
HASH = "kv_cache/block_hash.py"
# A scheduler that goes round for ever is noticed, too.
MAX_CPU_SECONDS = 120
MAX_BYTES = 2 << 30
# what breaks, file, text, its replacement
MUTATIONS = (
    (
        "waiting requests enter before running ones",
        SCHEDULER,
        "        self._schedule_running(step)\n        if not self._preempted_request_ids:\n"
        "            self._schedule_waiting(step)\n",
        "        self._schedule_waiting(step)\n        self._schedule_running(step)\n",
    ),
    (
        "a step that preempted admits",
        SCHEDULER,
        "if not self._preempted_request_ids:",
        "if True:",
    ),
    ("the budget is not lowered", SCHEDULER, "        step.token_budget -= num_tokens\n", ""),
    (
        "max_num_seqs is one more",
        SCHEDULER,
        "len(self._running) < self._config.max_num_seqs",
        "len(self._running) <= self._config.max_num_seqs",
    ),
    (
        "a lone request is capped too",
        SCHEDULER,
        "if len(self._running) + len(self._waiting) > 1:",
        "if True:",
    ),
    ("the threshold is ignored", SCHEDULER, "if step.threshold > 0:", "if False:"),
    (
        "the head is overtaken",
        SCHEDULER,
        "                return\n            self._waiting.pop_request()",
        "                self._waiting.remove_request(request)\n                self._waiting.add_request(request)\n"
        "                return\n            self._waiting.pop_request()",
    ),
    (
        "the watermark is ignored",
        SCHEDULER,
        "int(self._config.watermark * self._config.num_blocks) if self._running else 0",
        "0",
    ),
    (
        "the watermark holds for the first request",
        SCHEDULER,
        "self._config.num_blocks) if self._running else 0",
        "self._config.num_blocks)",
    ),
    ("fcfs preempts the oldest", SCHEDULER, "return len(running) - 1", "return 0"),
    (
        "priority preempts the most urgent",
        SCHEDULER,
        "        return max(\n",
        "        return min(\n",
    ),
    (
        "a victim's chunk stays in the step",
        SCHEDULER,
        "if request in step.requests:  # scheduled",
        "if False:  # scheduled",
    ),
    (
        "a victim's tokens are not given back",
        SCHEDULER,
        "step.token_budget += step.num_tokens.pop(entry)",
        "step.num_tokens.pop(entry)",
    ),
    (
        "a withdrawn chunk keeps its keys",
        SCHEDULER,
        "        self.kv_cache_manager.drop_keys(\n            request, request.num_computed_tokens // self._config.block_size\n        )\n",
        "",
    ),
    (
        "a preempted request waits at the back",
        SCHEDULER,
        "self._waiting.prepend_request(request)",
        "self._waiting.add_request(request)",
    ),
    (
        "a failed request keeps its keys",
        SCHEDULER,
        "if status == RequestStatus.FINISHED_ERROR:",
        "if False:",
    ),
    (
        "the end id does not end",
        SCHEDULER,
        "if token_id == request.eos_token_id and not params.ignore_eos:",
        "if False:",
    ),
    (
        "ignore_eos is ignored",
        SCHEDULER,
        "request.eos_token_id and not params.ignore_eos:",
        "request.eos_token_id:",
    ),
    ("stop ids do not end", SCHEDULER, "elif request.is_stop_token_id(token_id):", "elif False:"),
    (
        "max_tokens is one more",
        SCHEDULER,
        "num_output_tokens >= request.sampling_params.max_tokens",
        "num_output_tokens > request.sampling_params.max_tokens",
    ),
    (
        "max_model_len is one more",
        SCHEDULER,
        "            num_tokens >= self._config.max_model_len",
        "            num_tokens > self._config.max_model_len",
    ),
    (
        "cached tokens of a later admission",
        SCHEDULER,
        "if request.num_cached_tokens < 0:",
        "if True:",
    ),
    (
        "the whole prompt may be cached",
        MANAGER,
        "(request.num_tokens - 1) // self._block_size",
        "request.num_tokens // self._block_size",
    ),
    (
        "a hit goes on behind a gap",
        MANAGER,
        "                if block_id is None:\n                    break\n",
        "                if block_id is None:\n                    continue\n",
    ),
    ("no gate for the whole prompt", MANAGER, "if self._reserve_full_isl:", "if False:"),
    (
        "revived blocks count as free",
        MANAGER,
        "num_revived = sum(map(self.block_pool.is_free, table))",
        "num_revived = 0",
    ),
    (
        "blocks are freed first to last",
        MANAGER,
        "self.block_pool.free(reversed(table))",
        "self.block_pool.free(list(table))",
    ),
    (
        "blocks get their key a step late",
        MANAGER,
        "num_full = min(num_tokens, request.num_tokens) // self._block_size",
        "num_full = min(num_tokens - 1, request.num_tokens) // self._block_size",
    ),
    ("hits are not touched", MANAGER, "pool.touch(block_id)", "pass"),
    (
        "statistics count without caching",
        MANAGER,
        "        if self._enable_prefix_caching:\n            self.prefix_cache_stats",
        "        if True:\n            self.prefix_cache_stats",
    ),
    (
        "the window frees a block early",
        SPEC,
        "num_computed_tokens - self.sliding_window + 1)",
        "num_computed_tokens - self.sliding_window + 2)",
    ),
    (
        "one group of a kind is looked up for all",
        MANAGER,
        "        for group_id in kind.group_ids:\n            block_id = self",
        "        for group_id in kind.group_ids[:1]:\n            block_id = self",
    ),
    (
        "kinds need not agree",
        MANAGER,
        "num_agreeing + 1 if num_hits == len(hashes) else 1",
        "num_agreeing + 1",
    ),
    (
        "a window goes on behind a gap",
        MANAGER,
        "                num_hits = j - 1\n                num_found = 0\n",
        "                num_found = 0\n",
    ),
    (
        "any block will do for a window",
        MANAGER,
        "num_wanted = kind.spec.num_window_blocks()",
        "num_wanted = 1",
    ),
    (
        "a window counts as full at admission",
        MANAGER,
        "max(num_needed_by_group, min(num_rest, num_held))",
        "max(num_needed_by_group, num_rest)",
    ),
    (
        "found blocks of a window count beside the window",
        MANAGER,
        "max(num_needed_by_group, min(num_rest, num_held))",
        "max(num_needed_by_group, min(num_rest, num_held) + num_revived)",
    ),
    (
        "free blocks are enough if one group has them",
        MANAGER,
        "num_missing * len(request.block_ids) > self",
        "num_missing > self",
    ),
    (
        "groups share keys",
        MANAGER,
        "register_block(table[j], request.block_hashes[j], group_id)",
        "register_block(table[j], request.block_hashes[j], 0)",
    ),
    (
        "blocks that have left the window keep a failed request's keys",
        MANAGER,
        "elif j < len(request.block_hashes):",
        "elif False:",
    ),
    (
        "lost blocks keep a failed request's keys",
        MANAGER,
        "enumerate(request.block_ids or lost):",
        "enumerate(request.block_ids):",
    ),
    (
        "one group alone loses keys",
        MANAGER,
        "in enumerate(request.block_ids or lost):\n            for j in range(first_block",
        "in enumerate((request.block_ids or lost)[:1]):\n            for j in range(first_block",
    ),
    (
        "all layers count as alike",
        KV_CONFIG,
        "kinds.setdefault(window if window < max_model_len else 0, [])",
        "kinds.setdefault(0, [])",
    ),
    (
        "two layers of a group share a tensor",
        KV_CONFIG,
        "layer: KVCachePlace(group_id, tensor_id)",
        "layer: KVCachePlace(group_id, 0)",
    ),
    (
        "a dropped key is another group's",
        POOL,
        "cache = self._caches[block.group_id]\n",
        "cache = self._caches[0]\n",
    ),
    ("the window frees nothing", MANAGER, "        self._free_skipped_blocks(request)\n", ""),
    ("blocks without a key go to the back", POOL, "if block.block_hash is not None:", "if True:"),
    ("blocks with a key go to the front", POOL, "if block.block_hash is not None:", "if False:"),
    (
        "an allocated block keeps its key",
        POOL,
        "            self.drop_key(block_id)\n            self._blocks[block_id].ref_count = 1",
        "            self._blocks[block_id].ref_count = 1",
    ),
    (
        "the latest duplicate is found",
        POOL,
        "return next(iter(block_ids))",
        "return next(reversed(block_ids))",
    ),
    (
        "a reset does not need free blocks",
        POOL,
        "if self.num_free_blocks != self.num_usable_blocks:",
        "if False:",
    ),
    (
        "the salt is not part of the key",
        HASH,
        "hashlib.sha256(header + salt)",
        "hashlib.sha256(header)",
    ),
    ("keys do not chain", HASH, "parent = hashes[-1] if hashes else root", "parent = root"),
    (
        "priority is ignored",
        QUEUE,
        "key = (0, request.priority, request.arrival_time, request_id)",
        "key = (0, 0, request.arrival_time, request_id)",
    ),
    (
        "a request goes on behind its last token",
        SCHEDULER,
        "if self._awaits_end(request):",
        "if False:",
    ),
    (
        "a request waits for its token before it is scheduled",
        SCHEDULER,
        "return request.num_output_placeholders > 0 and (",
        "return request.num_output_placeholders > 0 or (",
    ),
    (
        "a preempted request loses the token that is being sampled",
        SCHEDULER,
        "if request is None or request.status == RequestStatus.WAITING:",
        "if request is None or request.status != RequestStatus.RUNNING:",
    ),
    (
        "a request that ends where it waits stays there",
        SCHEDULER,
        "                if not is_running:\n                    self._waiting.remove_request(request)\n",
        "",
    ),
    (
        "a block has its key before its last token is known",
        MANAGER,
        "min(num_tokens, request.num_tokens) // self._block_size",
        "num_tokens // self._block_size",
    ),
    (
        "a block gets no key when its last token is known",
        SCHEDULER,
        "            elif is_running:\n",
        "            elif False:\n",
    ),
    (
        "a failed step leaves other requests running",
        SCHEDULER,
        "        while self._running:\n",
        "        while False:\n",
    ),
    (
        "a failed step leaves prefixes",
        SCHEDULER,
        "        self.reset_prefix_cache()\n        return outputs\n",
        "        return outputs\n",
    ),
    (
        "arrival time is ignored",
        QUEUE,
        "request.priority, request.arrival_time, request_id)",
        "request.priority, 0.0, request_id)",
    ),
)


def tests_pass(package: Path) -> bool:
    """The Python twin's tests, against the package that `package` holds."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    python = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    tests = [
        "tests/runtime/test_scheduler.py",
        "tests/runtime/test_kv_cache.py",
        "tests/runtime/test_kv_cache_config.py",
        "tests/runtime/test_kv_cache_traces.py",
        "tests/parity/test_scheduler_scenarios.py",
        "tests/parity/test_kv_cache_groups.py",
    ]
    steps = (
        [*python, *tests, "-k", "not cpp and not twins", "-m", "not slow"],
        [sys.executable, "tests/parity/replay_traces.py", "tests/data/scheduler_traces", "--engine",
         "python"],
    )  # fmt: skip
    for step in steps:
        command = ["prlimit", f"--as={MAX_BYTES}", f"--cpu={MAX_CPU_SECONDS}", *step]
        if subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode != 0:
            return False
    return True


def main() -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        runtime = package / "pinfer" / "runtime"
        shutil.copytree(ROOT / "runtime", runtime)
        (package / "pinfer" / "__init__.py").write_text("")
        (package / "pinfer" / "export").symlink_to(ROOT / "export")
        if not tests_pass(package):
            print("the tests fail without any mutation")
            return 1
        for what, name, old, new in MUTATIONS:
            path = runtime / name
            original = path.read_text()
            if original.count(old) != 1:
                print(f"stale mutation: {what}: its text stands {original.count(old)} times")
                missed += 1
                continue
            path.write_text(original.replace(old, new))
            noticed = not tests_pass(package)
            path.write_text(original)
            missed += not noticed
            print(f"{'noticed' if noticed else 'MISSED '}  {what}", flush=True)
    print(f"{len(MUTATIONS) - missed} of {len(MUTATIONS)} mutations noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
