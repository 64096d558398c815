#!/bin/bash
# Runs targets (tests/fuzz/targets; all of them, or those named) one after the other with libFuzzer, each for FUZZ_SECONDS and
# for FUZZ_RUNS inputs, whichever comes first: tests/fuzz/run.sh BUILD [TARGET...]. Prints a line a target; the last line is
# "N passed, N failed". What is found lies in BUILD/found, what is learnt in BUILD/corpus.
cd "$(dirname "$0")/../.." || exit 2
if [ "$1" = check ]; then
        if ! echo 'int LLVMFuzzerTestOneInput(const char *a, unsigned long n); int LLVMFuzzerTestOneInput(const char *a, unsigned long n) { return a && n > 9; }' |
                "${@:2}" -x c -fsanitize=fuzzer,address -o /dev/null - 2>/dev/null; then
                echo "fuzz: needs a clang that has libFuzzer, and '${*:2}' is none; tests/deps.sh fuzz installs one, and FUZZ_CLANG=... names another" >&2
                exit 2
        fi
        exit 0
fi
# shellcheck source=tests/fuzz/seeds.sh
. tests/fuzz/seeds.sh
build=$1
shift
found=$build/found
folder=$(mktemp -d /dev/shm/ranvier-fuzz.XXXXXX 2>/dev/null || mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$found"
passed=0
failed=0

# Texts in sources and seeds become the dictionary.
words() {
        local words=$1 out=$2
        shift 2
        # shellcheck disable=SC2086 # words are patterns of files
        grep -ohaE '"[A-Za-z0-9_.:/ -]{2,48}"' $words "$@" 2>/dev/null | sort -u | head -2000 >"$out"
}

fuzz() {
        local name=$1 longest=$2 log=$build/log/$1 corpus=$build/corpus/$1 seeds=$folder/seeds/$1 dict="" status runs rate edges
        mkdir -p "$build/log" "$corpus" "$folder/$name/step-000000000007"
        seeds "$name" "$3" "$seeds"
        words "$4" "$folder/$name.dict" "$seeds"/*
        [ ! -s "$folder/$name.dict" ] || dict=-dict=$folder/$name.dict
        RANVIER_FUZZ=$name RANVIER_FUZZ_FOLDER=$folder/$name ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=16:malloc_context_size=8 \
                UBSAN_OPTIONS=print_stacktrace=1 "$build/tests/fuzz" -max_len="$longest" -max_total_time="$FUZZ_SECONDS" \
                ${FUZZ_RUNS:+-runs="$FUZZ_RUNS"} -timeout=120 -rss_limit_mb=2048 -malloc_limit_mb=512 -close_fd_mask=1 \
                -print_final_stats=1 ${dict:+"$dict"} -artifact_prefix="$found/$name-" "$corpus" "$seeds" \
                >"$log" 2>&1
        status=$?
        runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
        rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
        edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
        printf '%-14s %9s runs %6s a second %6s edges   ' "$name" "${runs:-?}" "${rate:-?}" "${edges:-?}"
        if [ $status -eq 0 ]; then
                passed=$((passed + 1))
                echo "nothing found"
        else
                failed=$((failed + 1))
                sed -n 's/^SUMMARY: /found: /p' "$log" | tail -n 1 | grep . || echo "found: it ended with status $status"
                sed -n 's/^artifact_prefix=.*Test unit written to /               /p' "$log"
                echo "               $log has where"
        fi
}

while IFS='|' read -r name longest seeds words; do
        case "$name" in '#'* | '') continue ;; esac
        [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
        fuzz "$name" "$longest" "$seeds" "$words" </dev/null
done <tests/fuzz/targets
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
