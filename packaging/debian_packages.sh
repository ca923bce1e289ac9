#!/bin/sh
# Installs the Debian packages of a purpose, where any is missing: as root at once, else says which.
# Usage: debian_packages.sh build|package|test|slow
set -eu

build="g++ cmake ninja-build libboost-dev libcli11-dev libonig-dev libssl-dev nlohmann-json3-dev python3 python3-venv"
package="dpkg-dev libonig5"
test="$package abigail-tools git libgtest-dev libsimde-dev nodejs npm pkg-config zsh"
# A browser for the chat page, libFuzzer, what packages and cross builds are tested with.
slow="chromium clang-19 libclang-rt-19-dev debootstrap g++-aarch64-linux-gnu qemu-user-static"
case "${1:-build}" in
  build) wanted=$build ;;
  package) wanted="$build $package" ;;
  test) wanted="$build $test" ;;
  slow) wanted="$build $test $slow" ;;
  *) echo "usage: $0 build|package|test|slow" >&2; exit 2 ;;
esac

# What a package provides may be there without the package (a compiler of one's own, say).
have_command() { command -v "$1" >/dev/null 2>&1; }
missing=""
for package in $wanted; do
  case $package in
    g++ | cmake | git | nodejs | npm | pkg-config) command=$package; [ "$package" = nodejs ] && command=node; have_command "$command" && continue ;;
    ninja-build) have_command ninja && continue ;;
    python3) have_command python3 && continue ;;
    python3-venv) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 && continue ;;
  esac
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' && continue
  missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "These Debian packages are missing; install them as root:" >&2
  echo "  apt-get install$missing" >&2
  exit 1
fi
echo "installing Debian packages:$missing"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
