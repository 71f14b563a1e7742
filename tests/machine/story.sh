#!/bin/sh
# The first process of the machines of `make test-kernel` and `make test-arm`: what a user would see there, then the tests
# of what depends on the machine and on the kernel. With `.tests` beside the project only those tests, all of them.
# Ends with "story: everything held", or does not.
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
dmesg -n 1
echo "story: $(uname -mr)"

# Groups as systemd lays them out: root is in a service's, the plain user in one of a folder that was given to it; what
# bounds a call is beside those, as nothing can be bounded below a group that processes are in.
groups=/sys/fs/cgroup
service=$groups/system.slice/story.service
scope=$groups/user.slice/app.slice/story.scope
mkdir -p $service $scope
for folder in $groups $groups/system.slice $groups/user.slice $groups/user.slice/app.slice; do
    echo "+pids +memory" > $folder/cgroup.subtree_control
done
chown -R 65534:65534 $groups/user.slice/app.slice
echo $$ > $service/cgroup.procs

held=yes
expect() { # WHAT COMMAND …
    what=$1
    shift
    if "$@"; then echo "story: held: $what"; else held=no; echo "story: BROKEN: $what"; fi
}
palyra() { python3 -m palyra "$@"; }
as_plain() { # COMMAND …, which is no function of this file
    (sh -c 'echo $PPID' > $scope/cgroup.procs && HOME=/srv/plain exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@")
}
tests="python3 -m pytest -q -p no:cacheprovider -n 2"
end() {
    [ "$held" = yes ] && echo "story: everything held"
    sync
    busybox poweroff -f
}
mkdir -p /srv/root/work /srv/plain/work
chown -R 65534:65534 /srv/plain

some=$(cat /opt/palyra/.tests)
if [ -n "$some" ]; then
    cd /opt/palyra || exit 1
    # shellcheck disable=SC2086  # lists of words
    expect "as root: $some" env HOME=/root $tests $some
    # shellcheck disable=SC2086
    expect "as a plain user: $some" as_plain $tests $some
    end
fi

refused() { # PALYRA …: a call is refused before anything runs, doctor says why and how that is changed
    "$@" run -- true 2>&1 | grep UNENFORCEABLE && "$@" doctor | grep "fix: Run as root: sysctl -w"
}
export HOME=/srv/root
cd /srv/root/work || exit 1
expect "root runs a call in a workspace of its own" palyra run -- true
expect "every attempt of doctor --prove fails, for root" palyra doctor --prove
expect "root's journal verifies" palyra journal verify
cd /srv/plain/work || exit 1
sysctl -qw user.max_user_namespaces=0
expect "without user namespaces nothing runs, and it is said why" refused as_plain python3 -m palyra
sysctl -qw user.max_user_namespaces=10000
expect "a plain user runs a call" as_plain python3 -m palyra run -- true
expect "every attempt of doctor --prove fails, for a plain user" as_plain python3 -m palyra doctor --prove

cd /opt/palyra || exit 1
export HOME=/root
there=tests/conformance
# shellcheck disable=SC2086  # $tests is a list of words
{
    expect "the start program and the filter" $tests tests/unit/sandbox/test_starter.py tests/unit/sandbox/test_seccomp.py
    expect "groups and the filter, attacked" $tests $there/test_groups.py $there/test_kernel.py $there/test_plain_kernel.py
    expect "groups and the filter, attacked by a plain user" as_plain $tests $there/test_groups.py $there/test_kernel.py
    expect "sandboxes started ahead" $tests $there/test_pool.py
    expect "signals and exit codes" $tests $there/test_processes.py -k "signal or older or never_starts"
}
end
