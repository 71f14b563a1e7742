#!/bin/sh
# The first process of the emulated machine of `make test-arm`: what a user would see there, then the tests of what
# depends on the machine and on the kernel. Ends with "story: everything held", or does not.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 PYTHONPATH=/opt/palyra/src:/opt/site PYTHONDONTWRITEBYTECODE=1 TERM=dumb
for kind in proc:/proc sysfs:/sys tmpfs:/tmp cgroup2:/sys/fs/cgroup; do
    busybox mount -t "${kind%%:*}" none "${kind#*:}"
done
mkdir -p /dev/pts /dev/shm
busybox mount -t devpts none /dev/pts
busybox mount -t tmpfs none /dev/shm
ln -s /proc/self/fd /dev/fd
chmod 1777 /tmp /dev/shm
busybox ip link set lo up
echo "+pids +memory" > /sys/fs/cgroup/cgroup.subtree_control
echo "story: $(uname -mr)"

held=yes
expect() { # WHAT COMMAND …
    what=$1
    shift
    if "$@"; then echo "story: held: $what"; else held=no; echo "story: BROKEN: $what"; fi
}
palyra() { python3 -m palyra "$@"; }
as_plain() { HOME=/srv/plain setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

mkdir -p /srv/root/work /srv/plain/work
chown -R 65534:65534 /srv/plain
export HOME=/srv/root
cd /srv/root/work || exit 1
expect "root runs a call in a workspace of its own" palyra run -- true
expect "every attempt of doctor --prove fails, for root" palyra doctor --prove
expect "root's journal verifies" palyra journal verify
cd /srv/plain/work || exit 1
expect "a plain user runs a call" as_plain python3 -m palyra run -- true
expect "every attempt of doctor --prove fails, for a plain user" as_plain python3 -m palyra doctor --prove
cd /opt/palyra || exit 1
export HOME=/root
tests() { python3 -m pytest -q -p no:cacheprovider -n 2 "$@"; }
expect "the start program and the filter" tests tests/unit/sandbox/test_starter.py tests/unit/sandbox/test_seccomp.py
expect "groups and the filter, attacked" tests tests/conformance/test_groups.py tests/conformance/test_kernel.py
expect "signals and exit codes" tests tests/conformance/test_processes.py -k "signal or older or never_starts"
[ "$held" = yes ] && echo "story: everything held"
sync
busybox poweroff -f
