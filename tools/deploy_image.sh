#!/usr/bin/env bash
# Builds deploy/Containerfile without a registry and prints the image's ID.
#
#   tools/deploy_image.sh PYTHON FOLDER
#
# The base is a small Debian made by debootstrap, kept in FOLDER; the wheels are fetched outside, by the same hashes, so the
# build needs no index. As root on Debian and its kin what is missing is installed; anyone else is told what to install.
set -euo pipefail
python=$1 folder=$2
base=localhost/palyra-deploy-base

missing=$(command -v podman >/dev/null || echo podman; command -v runc >/dev/null || command -v crun >/dev/null || echo runc
    command -v debootstrap >/dev/null || echo debootstrap
    [ -x /usr/libexec/podman/catatonit ] || command -v catatonit >/dev/null || echo catatonit)  # podman run --init
# shellcheck disable=SC2086  # a list of words
"$(dirname "$0")/packages.sh" $missing

mkdir -p "$folder"
if ! podman image exists "$base"; then
    echo "palyra: making a base image …" >&2
    root=$(mktemp -d)
    trap 'rm -rf -- "$root"' EXIT
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" \
        ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$folder/debootstrap.log" 2>&1
    tar --directory="$root" --create --file=- . | podman import --quiet - "$base" >/dev/null
fi

for list in build daemon; do
    "$python" -m pip download -qq --require-hashes --requirement "requirements/$list.txt" --dest "$folder/wheels"
done
echo "palyra: building deploy/Containerfile …" >&2
podman build --quiet --network=host --build-arg "BASE=$base" --volume "$(realpath "$folder/wheels"):/wheels:ro" \
    --env PIP_FIND_LINKS=/wheels --env PIP_NO_INDEX=1 --tag localhost/palyra-deploy --file deploy/Containerfile .
