#!/usr/bin/env bash
# Boots this machine's own file system, with an overlay over it that is gone afterwards, under a systemd of its own.
#
#   unshare --mount tests/deploy/boot.sh INSTALLATION UNITS INSIDE OUT
#
# The system has a loopback and no other network; what it starts is deploy/'s units and one that tries them out. INSIDE is the
# script that tries, OUT the folder where it writes what it found. Everything is done in a mount namespace of its own.
set -euo pipefail
installation=$(realpath "$1") units=$(realpath "$2") inside=$(realpath "$3") out=$(realpath "$4")

mount --make-rprivate /
scratch=$(mktemp -d)
mount -t tmpfs -o mode=0755 tmpfs "$scratch"
mkdir "$scratch"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
mount -t tmpfs -o mode=0755 tmpfs /run # systemd-nspawn's own; not the machine's

root=$scratch/root
mkdir -p "$root/opt/palyra" "$root/srv/workspaces"
cp "$units"/*.service "$units"/*.timer "$root/etc/systemd/system/"
cat >"$root/etc/systemd/system/palyra-try.service" <<'UNIT'
[Unit]
Description=Tries the units of Palyra
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -I /opt/inside.py /out
ExecStopPost=/bin/systemctl --force exit
TimeoutStartSec=240
UNIT
touch "$root/opt/inside.py"
printf '[Unit]\nRequires=palyra-try.service\n' >"$root/etc/systemd/system/palyra-try.target"

exec timeout --kill-after=10 270 systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit \
    --private-network --console=pipe --link-journal=no \
    --bind-ro="$installation:/opt/palyra" --bind-ro="$inside:/opt/inside.py" --bind="$out:/out" \
    systemd.unit=palyra-try.target </dev/null
