#!/usr/bin/env bash
# A Chromium with its driver, what drives it, and axe-core's accessibility rules, for tests/browser.
#
#   tools/browser.sh PYTHON TARGET
#
# As root on Debian and its kin a missing Chromium is installed; anyone else is told what to install. Everything else goes
# into TARGET, from the hashed locks in requirements. Without npm the accessibility rules are left out, and that is said.
set -euo pipefail
python=$1
target=$2
locks=$(cd "$(dirname "$0")/../requirements" && pwd)

find_missing() {
    command -v chromium >/dev/null || echo chromium
    command -v chromedriver >/dev/null || echo chromium-driver
}

missing=$(find_missing)
# shellcheck disable=SC2086  # a list of words
"$(dirname "$0")/packages.sh" $missing

test -x "$target/bin/python" || "$python" -m venv "$target"
"$target/bin/python" -m pip install -qq --require-hashes --requirement "$locks/browser.txt"
if command -v npm >/dev/null; then
    cp "$locks/axe/package.json" "$locks/axe/package-lock.json" "$target/"
    npm ci --prefix "$target" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
else
    echo "palyra: there is no npm; the accessibility rules are not checked" >&2
fi
