#!/bin/bash
# What every kernel of the CUDA device takes of a multiprocessor, from the reports that the assembler (ptxas -v) left in the
# build: runtime/device/cuda/cuda.mk. A test that no kernel keeps registers in memory; or, with --table ARCH (sm_90), the
# table of runtime/device/cuda/README.md. RANVIER_BIN: the build's bin.
root=$(dirname "$0")/../..
. "$root/tests/cli/tap.sh"
reports=${RANVIER_BIN:-build/bin}/../obj/runtime/device/cuda
sources=$root/runtime/device/cuda

# Architecture, kernel, registers, bytes of: static shared memory, stack, spills.
resources() {
        awk -v OFS="\t" -v q="'" '
                /Compiling entry function/ { split($0, part, q); name = part[2]; arch = part[4] }
                /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
                /: Used / {
                        registers = shared = 0
                        for (i = 2; i <= NF; i++) {
                                if ($i ~ /^registers/) registers = $(i - 1)
                                if ($i ~ /^smem/) shared = $(i - 2)
                        }
                        print arch, name, registers, shared, stack, spilled
                }' "$@" | c++filt | sed -E 's/\tvoid /\t/; s/>\([^\t]*\t/>\t/; s/\t([a-z_0-9]+)\([^\t]*\t/\t\1\t/; s/__half/fp16/g; s/__nv_bfloat16/bf16/g; s/float/fp32/g' |
                sort -u
}

# One row for what differs in the type alone.
table() { # ARCH
        printf '| kernel | registers | shared memory, bytes |\n|---|---|---|\n'
        resources "$reports"/*.ptxas | awk -F '\t' -v arch="$1" '
                $1 != arch { next }
                {
                        type = match($2, /<(fp32|fp16|bf16)/) ? substr($2, RSTART + 1, RLENGTH - 1) " " : ""
                        sub(/<(fp32|fp16|bf16)/, "<T", $2)
                        if (type != "") sub("<T, " substr(type, 1, length(type) - 1) ",", "<T, T,", $2)
                        if (!($2 in shared)) { order[++count] = $2; shared[$2] = $4 }
                        registers[$2] = registers[$2] (registers[$2] == "" ? "" : ", ") type $3
                }
                END { for (i = 1; i <= count; i++) printf "| `%s` | %s | %s |\n", order[i], registers[order[i]], shared[order[i]] }'
}

if [ "$1" = --table ]; then
        table "$2"
        exit
fi

if ! ls "$reports"/*.ptxas >/dev/null 2>&1; then
        echo "1..1"
        result "no kernel spills # skipped: the CUDA device is not built here"
        exit
fi
echo "1..2"
found=$(resources "$reports"/*.ptxas)
# Before sm_80, what stands for the tensor cores' instructions needs more than there is.
spilling=$(awk -F '\t' '{ sub(/sm_/, "", $1) } $1 >= 80 && ($5 > 0 || $6 > 0)' <<<"$found")
[ -z "$spilling" ] && [ "$(wc -l <<<"$found")" -ge "$(cat "$sources"/*.cu | grep -c __global__)" ]
result "no kernel of $(wc -l <<<"$found") has a stack or spills registers" || echo "$spilling"

rows=$(table sm_90 | sed -n 's/^| `\([^`]*\)`.*/\1/p')
if [ -z "$rows" ]; then
        result "README.md has every kernel in its table # skipped: not built for sm_90"
        exit
fi
listed=$(sed -n '/^| kernel | registers |/,/^$/s/^| `\([^`]*\)`.*/\1/p' "$sources/README.md")
differing=$(diff <(sort <<<"$listed") <(sort <<<"$rows"))
[ -z "$differing" ]
result "README.md has every kernel of the build for sm_90 in its table, and no other" || echo "$differing"
