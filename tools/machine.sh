#!/usr/bin/env bash
# tools/machine.sh PYTHON FOLDER MACHINE KERNEL [TEST …]: the sandbox under another kernel than this one's. A machine of
# Debian's architecture MACHINE (amd64, arm64) with the kernel of Debian's package KERNEL is started, without a network
# and without touching this system, and tests/machine/story.sh runs in it; with TESTs only those, as root and as a
# plain user. It is emulated, but an x86-64 one where the processor helps KVM.
#
# Below FOLDER, made once: Debian's packages for that machine and our dependencies' wheels, both from their ordinary
# clients, unpacked into a disk. The project's files are on a second disk, made anew each time.
set -euo pipefail

python=$1 folder=$2 machine=$3 kernel=$4
shift 4
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

accelerate=(-accel "tcg,thread=multi")
case $machine in
    amd64)
        wheels=x86_64 package=qemu-system-x86 console=ttyS0
        emulator=(qemu-system-x86_64 -M q35 -cpu max)
        # A KVM without the processor's help does not run every kernel.
        if [[ -w /dev/kvm ]] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerate=(-accel kvm "${accelerate[@]}"); fi
        ;;
    arm64)
        wheels=aarch64 package=qemu-system-arm console=ttyAMA0
        emulator=(qemu-system-aarch64 -M virt -cpu "max,pauth-impdef=on")
        ;;
    *)
        echo "palyra: no machine is called $machine" >&2
        exit 2
        ;;
esac

find_missing() {
    command -v "${emulator[0]}" >/dev/null || echo "$package"
    command -v mke2fs >/dev/null || echo e2fsprogs
}

missing=$(find_missing)
# shellcheck disable=SC2086  # a list of words
"$(dirname "$0")/packages.sh" $missing

apt_there() {
    mkdir -p "$folder"/apt/state/lists/partial "$folder"/apt/cache/archives/partial
    touch "$folder/apt/state/status"
    apt-get -qq -o APT::Architecture="$machine" -o APT::Architectures="$machine" -o APT::Sandbox::User=root \
        -o Dir::State="$folder/apt/state" -o Dir::State::status="$folder/apt/state/status" \
        -o Dir::Cache="$folder/apt/cache" -o Debug::NoLocking=1 "$@"
}

fetch() {
    rm -f "$folder"/apt/cache/archives/*.deb "$folder"/wheels/*.whl
    apt_there update
    apt_there install --yes --download-only --no-install-recommends \
        "$kernel" base-files busybox-static python3 bubblewrap git procps util-linux mount coreutils dash bash grep sed findutils \
        tar gzip diffutils curl make gcc libc6-dev libc-bin ca-certificates > "$folder/apt.log"
    local platforms=() tag
    for tag in manylinux2014 manylinux_2_17 manylinux_2_26 manylinux_2_28 manylinux_2_31 manylinux_2_34 manylinux_2_35 manylinux_2_36; do
        platforms+=(--platform "${tag}_$wheels")
    done
    "$python" -m pip download -qq --require-hashes --no-deps --only-binary=:all: "${platforms[@]}" --python-version 3.11 \
        --implementation cp --abi cp311 --abi abi3 --abi none --dest "$folder/wheels" --requirement requirements/dev.txt
}

unpack() {
    local root=$folder/root deb wheel name
    rm -rf "$root" "$folder/kernel"
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{proc,sys,dev,tmp,run,root,var/tmp,etc,home,srv,opt/site,opt/palyra}
    for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
    for deb in "$folder"/apt/cache/archives/*.deb; do
        case $deb in
            */linux-image-*) dpkg-deb -x "$deb" "$folder/kernel" ;;
            *) dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root" ;;
        esac
    done
    for wheel in "$folder"/wheels/*.whl; do
        case ${wheel##*/} in mypy-* | ruff-* | uv-*) continue ;; esac
        "$python" -m zipfile -e "$wheel" "$root/opt/site"
    done
    rm -rf "$root"/usr/share/{doc,man,locale,info}
    printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' > "$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' > "$root/etc/group"
    chmod 1777 "$root/tmp" "$root/var/tmp"
    cat > "$root/init" <<'END'
#!/bin/sh
busybox mount -t devtmpfs none /dev
until [ -e /dev/nvme1n1 ]; do busybox usleep 100000; done
busybox mount -t ext4 /dev/nvme1n1 /opt/palyra
exec /bin/sh /opt/palyra/tests/machine/story.sh
END
    chmod 755 "$root/init"
    rm -f "$folder/system.img"
    mke2fs -q -t ext4 -d "$root" "$folder/system.img" 2G > /dev/null
    rm -rf "$root"
}

made_of() { { echo "$machine $kernel" && sha256sum requirements/dev.txt "$0"; } | sha256sum; }

if [[ $(cat "$folder/.ready" 2>/dev/null) != "$(made_of)" ]]; then
    echo "palyra: fetching a machine ($machine, $kernel) into ${folder##*/} …"
    fetch
    unpack
    made_of > "$folder/.ready"
fi

rm -rf "$folder/project" "$folder/project.img"
mkdir "$folder/project"
git ls-files --cached --others --exclude-standard src tests tools pyproject.toml Makefile | tar -c -T - | tar -x -C "$folder/project"
echo "$*" > "$folder/project/.tests"
mke2fs -q -t ext4 -d "$folder/project" "$folder/project.img" 400M > /dev/null
rm -rf "$folder/project"

timeout 7200 "${emulator[@]}" "${accelerate[@]}" -smp 2 -m 3G -nographic -no-reboot -nic none \
    -kernel "$folder"/kernel/boot/vmlinuz-* -append "console=$console root=/dev/nvme0n1 rw init=/init panic=-1 quiet" \
    -drive "file=$folder/system.img,if=none,id=system,format=raw,snapshot=on" -device nvme,serial=system,drive=system \
    -drive "file=$folder/project.img,if=none,id=project,format=raw" -device nvme,serial=project,drive=project \
    < /dev/null | tee "$folder/console.log"
grep -q '^story: everything held' "$folder/console.log"
