#!/bin/bash
# Tries a package (tests/gpu/pack.sh) where nothing else is: in a chroot that has libc, libstdc++, bash and Python alone, as a
# user who is not root, without a network: unpack, calibrate, train on two ranks, simulate and compare, validate, and what a
# machine without a GPU answers. Needs root, for the chroot.
#
#     tests/gpu/package.sh FILE.tar.xz
set -u
file=$(realpath "$1")
root=$(mktemp -d)
chmod 755 "$root"
trap 'rm -rf "$root"' EXIT
count=0 failed=0
report() { # status, sentence
        count=$((count + 1))
        if [ "$1" -eq 0 ]; then echo "ok $count - $2"; else echo "not ok $count - $2"; failed=$((failed + 1)); fi
}

put() { # files with the libraries that they need, where they are here
        local one
        for one in "$@"; do
                echo "$one"
                ldd "$one" 2>/dev/null | grep -oE '/[^ ]+'
        done | sort -u | while read -r one; do
                mkdir -p "$root$(dirname "$one")"
                cp -L "$one" "$root$one"
        done
}
export PATH=/usr/bin:/bin:/usr/sbin:/sbin # Debian's Python
python=$(realpath /usr/bin/python3)
libraries=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
architecture=$(gcc -print-multiarch)
mkdir -p "$root"/{proc,dev,sys,tmp,etc,home/somebody} "$root$(dirname "$libraries")"
cp -r "$libraries" "$root$libraries"
put /bin/bash "$python" "$libraries"/lib-dynload/*.so /lib/"$architecture"/lib{c,m,dl,pthread,rt,util,resolv,stdc++,gcc_s}.so.?
ln -sf "$(basename "$python")" "$root$(dirname "$python")/python3"
mkdir -p "$root/bin" && ln -sf bash "$root/bin/sh"
echo 'somebody:x:1234:1234::/home/somebody:/bin/bash' >"$root/etc/passwd"
cp "$file" "$root/home/somebody/package.tar.xz"
chown -R 1234:1234 "$root/home/somebody"
chmod 1777 "$root/tmp"

inside() { # a command of bash, in the chroot
        unshare --mount --net bash -c '
                mount -t proc proc "$1/proc"
                mount --rbind /dev "$1/dev"
                mount --rbind /sys "$1/sys"
                ip link set lo up
                exec chroot --userspec=1234:1234 "$1" /bin/bash -c "cd /home/somebody; export HOME=/home/somebody PATH=/usr/bin:/bin; $2"' inside "$root" "$1"
}
try() { # sentence, command of bash
        inside "$2" >"$root/out" 2>&1
        local status=$?
        report $status "$1"
        [ $status -eq 0 ] || sed 's/^/# /' "$root/out"
}

try "it unpacks with Python" "python3 -m tarfile -e package.tar.xz"
try "it calibrates two ranks" "./ranvier-gpu/ranvier calibrate --ranks 2 --quick --model tiny --micro-batch-size 2 --out here.json"
try "it trains on two ranks" "for i in {1..2000}; do echo The quick brown fox jumps over the lazy dog \$i; done >text.txt
        ./ranvier-gpu/mpirun -n 2 ./ranvier-gpu/ranvier train tiny --dp 2 --micro-batch-size 2 --batch-size 8 --steps 20 --data text.txt --report measured.json"
try "it simulates the same run, with the memory that it had" "./ranvier-gpu/ranvier simulate tiny --precision fp32 --dp 2 --gpus 2 --micro-batch-size 2 --batch-size 8 \
        --profile here.json --platform local --report predicted.json && ./ranvier-gpu/ranvier compare predicted.json measured.json"
try "it predicts a cluster" "./ranvier-gpu/ranvier simulate llama3-8b --machine h100 --gpus 64 --dp 64 --zero 2 --micro-batch-size 1 --batch-size 128"
try "it validates against published runs" "./ranvier-gpu/ranvier validate"
inside "./ranvier-gpu/mpirun -n 1 ./ranvier-gpu/ranvier train tiny --device cuda --micro-batch-size 2 --batch-size 8 --steps 1 --data text.txt" \
        >"$root/out" 2>&1
[ $? -ne 0 ] && grep -qi "ranvier train: .*\(driver\|GPU\|cublas\)" "$root/out"
status=$?
report $status "without a GPU --device cuda is refused in a sentence"
[ $status -eq 0 ] || sed 's/^/# /' "$root/out"
# Nothing of this machine is in it: no library is looked for where the chroot has none.
inside "for f in ranvier-gpu/tree/build/bin/ranvier-*; do LD_LIBRARY_PATH=\$PWD/ranvier-gpu/lib LD_TRACE_LOADED_OBJECTS=1 \$f; done" >"$root/out" 2>&1
grep -q libsimgrid "$root/out" && ! grep -q "not found" "$root/out" && ! grep -oE '=> /[^ ]+' "$root/out" | grep -vE "/home/somebody/|/lib/$architecture/lib(c|m|dl|pthread|rt|util|resolv|stdc\+\+|gcc_s)\.so"
status=$?
report $status "all libraries but glibc's and the compiler's are the package's"
[ $status -eq 0 ] || sed 's/^/# /' "$root/out"
size=$(stat -c %s "$file")
[ "$size" -le $((40 * 1048576)) ]
report $? "it has at most 40 MiB: $(python3 -c "print(f'{$size / 2**20:.1f}')")"
echo "1..$count"
exit $((failed > 0))
