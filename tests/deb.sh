#!/bin/bash
# The Debian packages of `make deb`, tried: tests/deb.sh FOLDER. As root and where debootstrap is, in a new chroot, which is kept in
# FOLDER beside them for the next time: apt installs them, the doctor, a prediction, a training of two ranks by a user and
# the library's example run, and nothing is left when they are purged. Else they are unpacked, and run from there.
set -eu
folder=$(realpath "$1")
chroot=$folder/chroot
installed() {
        ranvier doctor || [ "$(id -u)" -eq 0 ] # root's mpirun is refused
        ranvier simulate llama3-8b --machine 8xh100 --tp 2 --dp 4 --zero 1 --micro-batch-size 1 --batch-size 64 | grep 'time per batch'
}

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
        echo "deb: no chroot (it takes root and debootstrap): the packages are unpacked and run from there"
        rm -rf "$folder/unpacked"
        for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder/unpacked"; done
        PATH=$folder/unpacked/usr/bin:$PATH installed
        exit 0
fi

[ -e "$chroot/etc/debian_version" ] || debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$chroot" >/dev/null
rm -rf "$chroot/packages"
cp -r "$folder/packages" "$chroot/packages"
cp /etc/resolv.conf "$chroot/etc/resolv.conf"
cleanup() { umount "$chroot/proc" "$chroot/dev"; }
trap cleanup EXIT
mount -t proc proc "$chroot/proc"
mount --bind /dev "$chroot/dev"
script=$(
        declare -f installed
        cat <<'END'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends /packages/ranvier_*.deb /packages/ranvier-data_*.deb >/dev/null 2>&1
id user >/dev/null 2>&1 || useradd --create-home user
installed
su user -c "$(declare -f installed); cd; installed; yes abc def | head -c 20000 >text
        mpirun --oversubscribe -n 2 ranvier train tiny --dp 2 --data text --steps 3 --micro-batch-size 1 --batch-size 2 2>/dev/null | grep '^loss'"
apt-get install -y -qq --no-install-recommends /packages/libranvier0_*.deb /packages/libranvier-dev_*.deb gcc libc6-dev pkg-config >/dev/null 2>&1
# shellcheck disable=SC2046 # words are flags
cc /usr/share/doc/libranvier-dev/examples/predict.c $(pkg-config --cflags --libs ranvier) -o /tmp/predict
/tmp/predict
apt-get purge -y -qq ranvier ranvier-data libranvier0 libranvier-dev >/dev/null 2>&1
left=$(find /usr /etc -xdev -name '*ranvier*')
[ -z "$left" ] || { echo "deb: left behind: $left" >&2; exit 1; }
END
)
chroot "$chroot" bash -c "$script" </dev/null # and not by a pipe: mpirun would read the rest of it
echo "deb: installed, run and purged in a chroot"
