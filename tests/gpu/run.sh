#!/usr/bin/env bash
# On a machine with a GPU: builds the kernels and the engine, checks tiny models, measures the shape
# of Llama 3 8B. Needs nvcc, g++, cmake, python3 with numpy; no network, no torch.
#
#   tar -xzf pack.tar.gz && tree/tests/gpu/run.sh . RESULT.json
#   run.sh --fake FAKES LIBPINFER BUNDLES RESULT.json   the same steps over the fake driver, to find
#                                                       this script's own faults where there is no GPU
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

run() {  # folder with libpinfer_cuda.so, libpinfer, bundles, result, more of measure.py
  # The package `pinfer` as it is installed, without installing it.
  local packages
  packages=$(mktemp -d)
  mkdir "$packages/pinfer"
  cp "$root/runtime/package_init.py" "$packages/pinfer/__init__.py"
  ln -s "$root/runtime" "$packages/pinfer/runtime"
  LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PINFER_LIBRARY="$2" PYTHONPATH="$packages" \
    "${PYTHON:-python3}" "$here/measure.py" "$3" "$4" "${@:5}"
}

if [ "${1:-}" = --fake ]; then
  run "$2" "$3" "$4" "$5" --fake
  exit
fi

pack=$(realpath "${1:?usage: run.sh PACK RESULT.json}")
result=$(realpath -m "${2:?usage: run.sh PACK RESULT.json}")
build=$pack/build
jobs=$(nproc)
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
echo "device: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1), sm_$arch"
"${PYTHON:-python3}" "$here/build_kernels.py" --arch "$arch" --jobs "$jobs" --into "$build/kernels" | tail -n 2
cmake -S "$root" -B "$build/engine" -DCMAKE_BUILD_TYPE=Release -DPINFER_BUILD_CLI=OFF -DPINFER_BUILD_STATIC=OFF \
  -DPINFER_INSTALL=OFF -DCMAKE_PREFIX_PATH="$pack/usr" >"$build/cmake.log"
cmake --build "$build/engine" -j "$jobs" --target pinfer_shared >"$build/make.log" || { tail "$build/make.log"; exit 1; }
for bundle in "$pack"/bundles/llama-8b-*; do "${PYTHON:-python3}" "$here/random_weights.py" "$bundle"; done
run "$build/kernels" "$build/engine/engine_cpp/libpinfer.so.1" "$pack/bundles" "$result"
