#!/usr/bin/env bash
# What tests/deploy needs: systemd with its container, nginx, and an installation of this tree as the units expect it.
#
#   tools/deploy.sh PYTHON FOLDER
#
# As root on Debian and its kin what is missing is installed; anyone else is told what to install. The installation is made in
# FOLDER and knows itself as /opt/palyra, where the booted system sees it.
set -euo pipefail
python=$1 folder=$2

if [ "$(id -u)" != 0 ]; then
    echo "palyra: booting a system needs root" >&2
    exit 1
fi
missing=$(command -v systemd-nspawn >/dev/null || echo systemd-container; command -v systemd-analyze >/dev/null || echo systemd)
# shellcheck disable=SC2086  # a list of words
"$(dirname "$0")/packages.sh" $missing

# A proxy for deploy/nginx.conf, unpacked and not installed: Debian would start one of its own for everybody.
proxy=$(dirname "$folder")/nginx
if ! [ -x "$proxy/usr/sbin/nginx" ]; then
    echo "palyra: fetching nginx …" >&2
    fetched=$(mktemp -d)
    chmod 755 "$fetched"
    (
        cd "$fetched"
        apt-get download -qq nginx >/dev/null 2>&1 || { apt-get update -qq >/dev/null && apt-get download -qq nginx 2>/dev/null; }
    )
    mkdir -p "$proxy"
    dpkg -x "$fetched"/nginx_*.deb "$proxy"
    rm -rf -- "$fetched"
fi

if ! [ -x "$folder/bin/pip" ] || ! cmp -s requirements/daemon.txt "$folder/requirements.txt"; then
    echo "palyra: installing into $folder …" >&2
    rm -rf -- "$folder"
    "$python" -m venv "$folder"
    "$folder/bin/python" -m pip install -qq --require-hashes --requirement requirements/daemon.txt
    cp requirements/daemon.txt "$folder/requirements.txt"
fi
"$folder/bin/python" -m pip install -qq --force-reinstall --no-deps .
"$folder/bin/python" -m compileall -q "$folder/lib"
for program in "$folder"/bin/*; do
    if [ "$(head -c 2 "$program")" = '#!' ] && [ ! -L "$program" ]; then
        sed -i '1s|^#!.*/bin/python[0-9.]*|#!/opt/palyra/bin/python|' "$program"
    fi
done
