#!/usr/bin/env bash
# Makes the root directory of a container from a release archive: the program, what it may open
# (libonig), licences, the C library, a user. No shell, no Python, no package manager.
# Usage: make_root.sh ARCHIVE.tar.gz ROOT LICENCES   (LICENCES: what sbom.py wrote for this root)
set -euo pipefail

[ $# -eq 3 ] || { echo "usage: $0 ARCHIVE.tar.gz ROOT LICENCES" >&2; exit 2; }
archive=$1 root=$2 licences=$3
[ ! -e "$root" ] || { echo "make_root: $root exists" >&2; exit 1; }
umask 022
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
tar -xzf "$archive" -C "$unpacked" --strip-components=1

mkdir -p "$root"/{bundle,etc,tmp,usr/bin,usr/lib,usr/share/doc}
cp "$unpacked/bin/pinfer" "$root/usr/bin/pinfer"
cp "$unpacked/lib/libonig.so.5" "$root/usr/lib/libonig.so.5"
cp -r "$licences" "$root/usr/share/doc/pinfer"

# What they are linked with, where the dynamic linker looks for it.
ldd "$root/usr/bin/pinfer" "$root/usr/lib/libonig.so.5" |
  sed -nE 's|.*[[:space:]](/lib[^ ]+) \(0x.*|\1|p' | sort -u |
  while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done

# Names for user ids; host names come from the resolver in libc.
printf 'root:x:0:0::/:\npinfer:x:65532:65532::/:\n' > "$root/etc/passwd"
printf 'root:x:0:\npinfer:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
