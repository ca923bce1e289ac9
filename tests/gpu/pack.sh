#!/usr/bin/env bash
# Packs what tests/gpu/run.sh needs on a machine with a GPU and without a network: this tree, headers
# that it may lack, bundles. Usage: tests/gpu/pack.sh OUTPUT.tar.gz [python with torch, triton]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
output=$(realpath -m "${1:?usage: pack.sh OUTPUT.tar.gz [PYTHON]}")
python=${2:-$root/.venv/bin/python}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/pack/usr/include" "$scratch/pack/usr/share/cmake"
git -C "$root" archive --prefix=tree/ HEAD csrc engine_cpp runtime tests/gpu tests/CMakeLists.txt packaging \
  CMakeLists.txt CMakePresets.json pyproject.toml README.md LICENSE | tar -x -C "$scratch/pack"
cp -r /usr/include/nlohmann "$scratch/pack/usr/include/"
cp -r /usr/share/cmake/nlohmann_json "$scratch/pack/usr/share/cmake/"
"$python" "$root/tests/gpu/pack_bundles.py" "$scratch/pack/bundles"
tar -C "$scratch/pack" --exclude=./bundles.scratch --dereference --sort=name --mtime=@0 -czf "$output" .
bytes=$(stat -c %s "$output")
echo "$output: $((bytes >> 20)) MiB"
# Must travel to where there is a GPU.
[ "$bytes" -lt $((60 << 20)) ] || { echo "more than 60 MiB" >&2; exit 1; }
