#!/usr/bin/env bash
# tools/arm.sh PYTHON FOLDER: the sandbox on another machine and an older kernel. A 64-bit ARM machine with Debian's
# own kernel is emulated, without a network and without touching this system, and tests/arm/story.sh runs in it.
#
# Below FOLDER, made once: Debian's packages for that machine and our dependencies' wheels, both from their ordinary
# clients, unpacked into a disk. The project's files are on a second disk, made anew each time.
set -euo pipefail

python=$1 folder=$2
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

find_missing() {
    command -v qemu-system-aarch64 >/dev/null || echo qemu-system-arm
    command -v mke2fs >/dev/null || echo e2fsprogs
}

missing=$(find_missing)
# shellcheck disable=SC2086  # a list of words
"$(dirname "$0")/packages.sh" $missing

apt_for_arm() {
    mkdir -p "$folder"/apt/state/lists/partial "$folder"/apt/cache/archives/partial
    touch "$folder/apt/state/status"
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
        -o Dir::State="$folder/apt/state" -o Dir::State::status="$folder/apt/state/status" \
        -o Dir::Cache="$folder/apt/cache" -o Debug::NoLocking=1 "$@"
}

fetch() {
    apt_for_arm update
    apt_for_arm install --yes --download-only --no-install-recommends \
        linux-image-cloud-arm64 busybox-static python3 bubblewrap git procps util-linux coreutils dash bash grep sed findutils \
        libc-bin ca-certificates > "$folder/apt.log"
    local platforms=() tag
    for tag in manylinux2014 manylinux_2_17 manylinux_2_26 manylinux_2_28 manylinux_2_31 manylinux_2_34 manylinux_2_35 manylinux_2_36; do
        platforms+=(--platform "${tag}_aarch64")
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
            */linux-image-*-cloud-*) dpkg-deb -x "$deb" "$folder/kernel" ;;
            */linux-image-*) ;;
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
exec /bin/sh /opt/palyra/tests/arm/story.sh
END
    chmod 755 "$root/init"
    rm -f "$folder/system.img"
    mke2fs -q -t ext4 -d "$root" "$folder/system.img" 1G > /dev/null
    rm -rf "$root"
}

if [[ $(cat "$folder/.ready" 2>/dev/null) != "$(sha256sum requirements/dev.txt "$0" | sha256sum)" ]]; then
    echo "palyra: fetching an ARM machine into ${folder##*/} …"
    fetch
    unpack
    sha256sum requirements/dev.txt "$0" | sha256sum > "$folder/.ready"
fi

rm -rf "$folder/project" "$folder/project.img"
mkdir "$folder/project"
git ls-files --cached --others --exclude-standard src tests tools pyproject.toml | tar -c -T - | tar -x -C "$folder/project"
mke2fs -q -t ext4 -d "$folder/project" "$folder/project.img" 400M > /dev/null
rm -rf "$folder/project"

timeout 3000 qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -accel tcg,thread=multi -smp 2 -m 3G -nographic -no-reboot \
    -nic none -kernel "$folder"/kernel/boot/vmlinuz-* \
    -append "console=ttyAMA0 root=/dev/nvme0n1 rw init=/init panic=-1 quiet" \
    -drive "file=$folder/system.img,if=none,id=system,format=raw,snapshot=on" -device nvme,serial=system,drive=system \
    -drive "file=$folder/project.img,if=none,id=project,format=raw" -device nvme,serial=project,drive=project \
    < /dev/null | tee "$folder/console.log"
grep -q '^story: everything held' "$folder/console.log"
