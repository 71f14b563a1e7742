#!/usr/bin/env bash
# The AssemblyScript compiler that builds the sample skills, from the hashed lock in requirements/assemblyscript.
# Where the system has no node 20 with npm, both come from the Python registry, by requirements/node.txt.
#
#   tools/assemblyscript.sh PYTHON TARGET
set -euo pipefail
python=$1
target=$2
locks=$(cd "$(dirname "$0")/../requirements" && pwd)

has_node() {
    command -v npm >/dev/null && command -v node >/dev/null &&
        node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)'
}

mkdir -p "$target"
if ! has_node; then
    echo "palyra: installing node into $target …"
    "$python" -m venv "$target/python"
    "$target/python/bin/python" -m pip install -qq --require-hashes --requirement "$locks/node.txt"
    PATH="$(cd "$target/python/bin" && pwd):$PATH"
fi
cp "$locks/assemblyscript/package.json" "$locks/assemblyscript/package-lock.json" "$target/"
npm ci --prefix "$target" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
touch "$target/.ready"
