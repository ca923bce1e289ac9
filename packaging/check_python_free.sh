#!/usr/bin/env bash
# Shows that a deployment needs no Python, torch or OpenMP: looks at what the binary and every
# artifact link, then runs them in a root directory that holds nothing but them and the system
# libraries that the README lists. Usage: check_python_free.sh PINFER BUNDLE   (as root: chroot)
set -euo pipefail

pinfer=$(realpath "$1")
bundle=$(realpath "$2")
allowed='^(linux-vdso\.so\.1|libc\.so\.6|libm\.so\.6|/lib.*/ld-linux-[a-z0-9_-]+\.so\.[0-9])$'

fail() { echo "check_python_free: $*" >&2; exit 1; }

for file in "$pinfer" "$bundle"/artifacts/*.so; do
  while read -r name; do
    [[ $name =~ $allowed ]] || fail "$file links $name"
  done < <(ldd "$file" | awk '{print $1}')
  echo "ok  links libc and libm only: ${file##*/}"
done

if [ "$(id -u)" -ne 0 ]; then
  echo "skipped: running in an empty root needs chroot, which needs root"
  exit 0
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/dev"
cp "$pinfer" "$root/bin/pinfer"
cp -r "$bundle" "$root/bundle"
while read -r library; do
  mkdir -p "$root$(dirname "$library")"
  cp -L "$library" "$root$library"
done < <(ldd "$pinfer" "$bundle"/artifacts/*.so | grep -oE '/lib[^ ]+' | sort -u)
echo "ok  root holds: $(cd "$root" && find . -type f -path './lib*' | sort | tr '\n' ' ')"

text=$(chroot "$root" /bin/pinfer run /bundle -p "The capital of France is" -n 8 --temperature 0)
[ -n "$text" ] || fail "no text came out"
echo "ok  runs there: The capital of France is$text"
