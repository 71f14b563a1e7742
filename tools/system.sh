#!/usr/bin/env bash
# What Palyra needs of the system and pip cannot bring: bubblewrap, a python3 that can make a .venv, setpriv.
# As root on Debian and its kin what is missing is installed; anyone else is told what to install.
#
#   tools/system.sh PYTHON VENV_PYTHON [PROGRAM …]
#
# A PROGRAM is one that tests use and that has the name of its Debian package.
set -euo pipefail
python=$1
venv_python=$2
shift 2
programs=("$@")

if [ "$(uname -s)" != Linux ]; then
    [ -x "$python" ] || { echo "palyra: $python is missing; name another with make PYTHON=…" >&2; exit 1; }
    exit 0
fi

find_missing() {
    command -v bwrap >/dev/null || echo bubblewrap
    command -v setpriv >/dev/null || echo util-linux
    [ -x "$python" ] || echo python3
    # A .venv that stands needs no ensurepip any more.
    [ -x "$venv_python" ] || "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    local program
    for program in "${programs[@]}"; do
        command -v "$program" >/dev/null || echo "$program"
    done
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    local options=(-qq -y --no-install-recommends -o Dpkg::Use-Pty=0)
    # The package lists of a fresh machine may be old or absent.
    apt-get install "${options[@]}" "$@" >/dev/null 2>&1 && return
    apt-get update -qq >/dev/null && apt-get install "${options[@]}" "$@" >/dev/null
}

mapfile -t missing < <(find_missing)
if [ "${#missing[@]}" -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "palyra: installing ${missing[*]} …"
    apt_install "${missing[@]}" || true
    mapfile -t missing < <(find_missing)
fi
if [ "${#missing[@]}" -gt 0 ]; then
    echo "palyra: missing from this system: ${missing[*]} (names of Debian packages)" >&2
    echo "hint: sudo apt-get install ${missing[*]}" >&2
fi
case " ${missing[*]} " in
    *" python3"*) exit 1 ;;
    *" bubblewrap "*) echo "palyra: going on without bubblewrap; tier C calls will be refused until it is there" >&2 ;;
esac
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "palyra: $python is older than 3.11; name a newer one with make PYTHON=…" >&2
    exit 1
fi
