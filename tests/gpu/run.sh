#!/usr/bin/env bash
# On a machine with a GPU: builds the kernels and the engine, checks tiny models, measures copies and
# the shape of Llama 3 8B. Needs nvcc, g++, cmake, python3 with numpy; no network, no torch.
#
#   tar -xzf pack.tar.gz && tree/tests/gpu/run.sh . RESULT.json
#
# Where there is no GPU, to find this script's own faults:
#   run.sh --fake FAKES PACK RESULT.json   the same, kernels built for sm_90; then runs with the driver
#                                          and the kernels of FAKES (build/*/tests/cuda/fakes), and
#                                          measures a tiny model
#   run.sh --fake FAKES --built LIBPINFER PACK RESULT.json   the same without building
set -euo pipefail
usage="usage: run.sh [--fake FAKES [--built LIBPINFER]] PACK RESULT.json"
fakes='' library=''
while [[ ${1-} == --* ]]; do
  case "$1" in
    --fake) fakes=$(realpath "${2:?$usage}") ;;
    --built) library=$(realpath "${2:?$usage}") ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  shift 2
done
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
pack=$(realpath "${1:?$usage}")
result=$(realpath -m "${2:?$usage}")
python=${PYTHON:-python3}
build=$pack/build
kernels=${fakes:-$build/kernels}
options=()

if [ -n "$fakes" ]; then
  arch=90
  options+=(--fake)
else
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  echo "device: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1), sm_$arch"
fi
if [ -z "$library" ]; then
  jobs=$(nproc)
  "$python" "$here/build_kernels.py" --arch "$arch" --jobs "$jobs" --into "$build/kernels" | tail -n 2
  echo "kernels: $SECONDS s"
  cmake -S "$root" -B "$build/engine" -DCMAKE_BUILD_TYPE=Release -DPINFER_BUILD_CLI=OFF \
    -DPINFER_BUILD_STATIC=OFF -DPINFER_INSTALL=OFF -DCMAKE_PREFIX_PATH="$pack/usr" >"$build/cmake.log"
  cmake --build "$build/engine" -j "$jobs" --target pinfer_shared >"$build/make.log" ||
    { tail "$build/make.log"; exit 1; }
  library=$build/engine/engine_cpp/libpinfer.so.1
  echo "kernels and engine: $SECONDS s"
  options+=(--build-seconds "$SECONDS")
fi
if [ -z "$fakes" ]; then
  for bundle in "$pack"/bundles/llama-8b-*; do "$python" "$here/random_weights.py" "$bundle"; done
fi

# The package `pinfer` as it is installed, without installing it.
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
mkdir "$packages/pinfer"
cp "$root/runtime/package_init.py" "$packages/pinfer/__init__.py"
ln -s "$root/runtime" "$packages/pinfer/runtime"
LD_LIBRARY_PATH="$kernels${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PINFER_LIBRARY="$library" \
  PYTHONPATH="$packages" "$python" "$here/measure.py" "$pack/bundles" "$result" "${options[@]}"
echo "all: $SECONDS s"
