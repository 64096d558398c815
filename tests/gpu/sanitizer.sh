#!/bin/bash
# The conformance suite under each tool of compute-sanitizer: accesses outside of memory, races in shared memory, reads of
# what was never written.
. "$(dirname "$0")/../cli/tap.sh"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
echo 1..3
for tool in memcheck racecheck initcheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 99 "$RANVIER_CONFORMANCE" >"$output" 2>&1 &&
                grep -q "ERROR SUMMARY: 0 errors\|RACECHECK SUMMARY: 0 hazards" "$output"
        result "$tool finds nothing in the conformance suite" || tail -40 "$output" | sed 's/^/# /'
done
