#!/usr/bin/env bash
# A Chromium and its driver for tests/browser. As root on Debian and its kin what is missing is installed; anyone else is
# told what to install.
set -euo pipefail

find_missing() {
    command -v chromium >/dev/null || echo chromium
    command -v chromedriver >/dev/null || echo chromium-driver
}

missing=$(find_missing)
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "palyra: install these first: $(echo $missing)" >&2
    exit 1
fi
echo "palyra: installing" $missing "…" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of words
apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null && apt-get install -qq -y --no-install-recommends $missing >/dev/null; }
