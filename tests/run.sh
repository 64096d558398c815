#!/bin/sh
# Runs test programs and scripts that print TAP, one after another; shows each one's count, and every line of those that
# fail. The last line is "N passed, N failed". A program that dies, or prints no test, counts as a failure.
export CMOCKA_MESSAGE_OUTPUT=TAP
output=$(mktemp)
trap 'rm -f "$output"' EXIT
passed=0
failed=0
for test in "$@"; do
        start=$(date +%s)
        timeout "${TEST_TIMEOUT:-900}" "$test" >"$output" 2>&1 </dev/null
        status=$?
        ok=$(grep -c '^ok ' "$output")
        bad=$(grep -c '^not ok ' "$output")
        [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
        # The plan says how many there should have been: a test that ends early has failed.
        plan=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$output" | awk '{ sum += $1 } END { print sum + 0 }')
        [ "$plan" -ne $((ok + bad)) ] && bad=$((bad + 1))
        [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ] && bad=1
        printf '%-28s %4d passed, %d failed   %d s\n' "$(basename "$test")" "$ok" "$bad" "$(($(date +%s) - start))"
        if [ "$bad" -gt 0 ]; then
                echo "---- $test ended with status $status:"
                cat "$output"
                echo "----"
        fi
        passed=$((passed + ok))
        failed=$((failed + bad))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
