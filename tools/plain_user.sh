#!/usr/bin/env bash
# Runs a command of this project as a plain user.
#
#   tools/plain_user.sh COMMAND ARG…
#
# Started by a plain user it just runs it. Started by root it runs it as `nobody` (PLAIN_USER names another) in a
# copy of the project that user can read and write: the checkout may lie below root's home, and what a test leaves
# behind must not belong to a stranger. The copy brings its .venv along, compiled, less the tools no test needs.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    exec "$@"
fi

here=$PWD
user=${PLAIN_USER:-nobody}
copy=$(mktemp -d /tmp/palyra-plain.XXXXXX)
trap 'rm -rf -- "$copy"' EXIT
echo "palyra: now as $user, in a copy …"

tar --create --file=- --exclude=./.git --exclude=./.make --exclude='./.*_cache' --exclude=./.hypothesis --exclude='./tests/*__pycache__' \
    --exclude=./.venv/bin/uv --exclude=./.venv/bin/uvx --exclude=./.venv/bin/ruff \
    --exclude='./.venv/lib/*/site-packages/mypy' --exclude='./.venv/lib/*/site-packages/pip' . |
    tar --extract --file=- --directory="$copy" --no-same-owner
# Scripts and the editable install carry the folder's name.
grep -rlIZF -- "$here/" "$copy/.venv/bin" "$copy"/.venv/lib/*/site-packages/*.pth |
    xargs -0 -r sed -i "s|$here/|$copy/|g"
printf %s "$copy" >"$copy/.venv/.ready"
mkdir "$copy/.plain-home"
chmod -R u+rwX,go+rX "$copy"
chown -R "$user:$(id -g "$user")" "$copy"

cd "$copy"
setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups --inh-caps=-all \
    env --ignore-environment HOME="$copy/.plain-home" USER="$user" LOGNAME="$user" LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" || status=$?
# Which promises were shown here; the checkout's `make test` looks at it.
if [ -f .make/promises/plain.json ]; then
    mkdir -p "$here/.make/promises"
    cat .make/promises/plain.json >"$here/.make/promises/plain.json"
fi
exit "${status:-0}"
