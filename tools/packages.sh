#!/usr/bin/env bash
# Debian packages that one of the heavier targets needs. As root on Debian and its kin they are installed; anyone else is
# told what to install.
#
#   tools/packages.sh PACKAGE …
set -euo pipefail
[ $# -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "palyra: install these first: $*" >&2
    echo "hint: sudo apt-get install $*" >&2
    exit 1
fi
echo "palyra: installing $* …" >&2
export DEBIAN_FRONTEND=noninteractive
options=(-qq -y --no-install-recommends -o Dpkg::Use-Pty=0)
# The package lists of a fresh machine may be old or absent.
apt-get install "${options[@]}" "$@" >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null && apt-get install "${options[@]}" "$@" >/dev/null; }
