#!/usr/bin/env bash
# A container engine and a small image of our own for tests/podman; prints the image's ID.
#
#   tools/podman.sh
#
# Needs no registry: the image is a static busybox, imported from a tar file. As root on Debian and its kin what is missing
# is installed; anyone else is told what to install. The image has traps in it that Palyra must step over: an entry point, a
# volume, a variable.
set -euo pipefail

find_missing() {
    command -v podman >/dev/null || echo podman
    command -v runc >/dev/null || command -v crun >/dev/null || echo runc
    [ -x /bin/busybox ] || echo busybox-static
}

missing=$(find_missing)
# shellcheck disable=SC2086  # a list of words
"$(dirname "$0")/packages.sh" $missing

root=$(mktemp -d)
trap 'rm -rf -- "$root"' EXIT
chmod 0755 "$root"
mkdir -p "$root"/{bin,data,dev,etc,proc,sys,tmp,usr/bin,var/tmp}
chmod 1777 "$root/tmp" "$root/var/tmp" "$root/data"
cp /bin/busybox "$root/bin/busybox"
for name in $(/bin/busybox --list); do
    [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
done
printf '#!/bin/sh\necho "the image entered first: $*"\n' >"$root/bin/enter"
chmod 0755 "$root/bin/enter"
echo 'agent:x:1000:1000:agent:/tmp:/bin/sh' >"$root/etc/passwd"

tar --sort=name --mtime=@0 --owner=0 --group=0 --directory="$root" --create --file=- . |
    podman import --quiet --change 'ENTRYPOINT ["/bin/enter"]' --change 'VOLUME /data' --change 'ENV FROM_IMAGE=yes' \
        - localhost/palyra-test
