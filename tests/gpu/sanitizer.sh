#!/bin/bash
# Our kernels under each tool of compute-sanitizer, a group of the conformance suite at a time, so that one that takes long
# does not hide the others: accesses outside of memory, races in shared memory, reads of what was never written. Kernels of
# cuBLASLt are left out: their hazards are not ours. SECONDS_EACH (60) is what a group may take under a tool.
. "$(dirname "$0")/../cli/tap.sh"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
tools=(memcheck racecheck initcheck)
groups=('squared_norms*' 'attention*' 'layernorms*' 'rmsnorms*' 'norms_of_heads*' 'embeddings*' 'rotary*' 'cross_entropies*' 'adamw*'
        'elementwise*' 'columns*' 'latent*' 'routes*' 'permutations*' 'weighted_swiglus*')
exclude=()
for name in nvjet cutlass gemm cublas splitKreduce; do
        exclude+=(--kernel-regex-exclude "kns=$name")
done

# TOOL and GROUP; 124: it took too long.
check() {
        timeout "${SECONDS_EACH:-60}" compute-sanitizer --tool "$1" --error-exitcode 99 "${exclude[@]}" \
                "$RANVIER_CONFORMANCE" "$2" >"$output" 2>&1
}

echo "1..$((${#tools[@]} * ${#groups[@]}))"
for tool in "${tools[@]}"; do
        works=yes
        for group in "${groups[@]}"; do
                said="$tool finds nothing in ${group%\*}"
                if [ "$works" = no ]; then
                        skip "$said" "not run: the tool does not work here"
                        continue
                fi
                check "$tool" "$group"
                status=$?
                clean=no
                [ $status -eq 0 ] && grep -q "SUMMARY: 0 \(errors\|hazards\)" "$output" && clean=yes
                if [ $status -eq 124 ]; then
                        skip "$said" "not run to the end: more than ${SECONDS_EACH:-60} s"
                elif [ $clean = no ] && [ "$group" = "${groups[0]}" ] && ! grep -q "SUMMARY: [1-9]" "$output"; then
                        works=no # nothing was found, and the tool did not come to a summary
                        skip "$said" "not run: $(grep -m 1 -i 'error\|support\|device' "$output" | tr -d '#')"
                else
                        [ $clean = yes ]
                        result "$said" || tail -40 "$output" | sed 's/^/# /'
                fi
        done
done
