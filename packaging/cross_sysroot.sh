#!/usr/bin/env bash
# Gets the libraries that a cross build needs, for another Debian architecture, from this machine's
# apt sources into a folder. Nothing is installed, and the machine's own architecture stays as it is.
# Usage: cross_sysroot.sh ARCHITECTURE FOLDER      (cross_sysroot.sh arm64 build/cross-aarch64/sysroot)
set -euo pipefail

[ $# -eq 2 ] || { echo "usage: $0 ARCHITECTURE FOLDER" >&2; exit 2; }
architecture=$1 folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,cache/archives}/partial
options=(-qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
         -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null
         -o APT::Sandbox::User="$(id -un)")
apt-get "${options[@]}" update
# libboost-dev is the name of the release's own version.
boost=$(apt-cache "${options[@]}" depends libboost-dev | sed -n 's/^ *Depends: //p')
packages="$boost libcli11-dev libgtest-dev libssl-dev nlohmann-json3-dev"
(cd "$work" && apt-get "${options[@]}" download $packages)
mkdir -p "$folder"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$folder"; done
echo "$folder: $packages ($architecture)"
