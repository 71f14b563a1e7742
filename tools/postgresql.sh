#!/usr/bin/env bash
# A PostgreSQL server for `make test-cluster`: its programs, nothing that is started. As root on Debian it is installed.
set -euo pipefail

find_server() { compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }

find_server && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "palyra: installing postgresql …"
    export DEBIAN_FRONTEND=noninteractive
    # The package would make and start a server of its own; tests start theirs.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    options=(-qq -y --no-install-recommends -o Dpkg::Use-Pty=0)
    apt-get install "${options[@]}" postgresql >/dev/null 2>&1 ||
        { apt-get update -qq >/dev/null && apt-get install "${options[@]}" postgresql >/dev/null; } || true
fi
find_server || { echo 'palyra: PostgreSQL is missing; hint: sudo apt-get install postgresql' >&2; exit 1; }
