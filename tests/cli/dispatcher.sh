#!/bin/bash
# ranvier, the dispatcher: what it lists, what it refuses, and how it starts the programs (fakes that print).
set -u
ranvier=$RANVIER_BIN/ranvier
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
count=0

# check SENTENCE STATUS PATTERN COMMAND...: exit status and a pattern in what it printed
check() {
        local sentence=$1 status=$2 pattern=$3 said found
        shift 3
        said=$("$@" 2>&1)
        found=$?
        count=$((count + 1))
        if [ $found -eq "$status" ] && grep -qE -- "$pattern" <<<"$said"; then
                echo "ok $count - $sentence"
        else
                echo "not ok $count - $sentence"
                echo "# status $found, $status was expected; printed: ${said//$'\n'/$'\n'# }"
        fi
}

echo 1..17
check "help lists the commands" 0 '^  simulate +[a-z]' "$ranvier" --help
check "help shows a workflow" 0 'ranvier compare predicted.json measured.json' "$ranvier" --help
check "no command is answered with help" 0 '^Usage: ranvier COMMAND' "$ranvier"
check "the version is told" 0 '^ranvier [0-9]+\.[0-9]+\.[0-9]+$' "$ranvier" --version
check "a misspelt command is answered with the nearest" 2 "'simulat'; the nearest is 'simulate'" "$ranvier" simulat
check "an unknown option is refused" 2 'unknown option --nonsense' "$ranvier" --nonsense

check "make builds everything where nvcc is found, too" 0 '^\.DEFAULT_GOAL := all$' \
        make --no-print-directory --dry-run --print-data-base NVCC=true CUDA=auto

for words in --version --help "train --help"; do
        # shellcheck disable=SC2016,SC2086
        check "what '$words' cannot print is a failure" 1 '^ranvier( train)?: standard output could not be written' \
                bash -c 'exec "$@" >/dev/full' bash "$ranvier" $words
done

# An installation of its own: programs in libexec that print what they are given.
mkdir -p "$folder/bin" "$folder/libexec/ranvier"
cp "$ranvier" "$folder/bin/ranvier"
for program in ranvier-train ranvier-sim ranvier-plot ranvier-calibrate; do
        printf '#!/bin/sh\necho "%s" "$@"\nexit 7\n' $program >"$folder/libexec/ranvier/$program"
done
chmod +x "$folder"/bin/* "$folder"/libexec/ranvier/*
installed=$folder/bin/ranvier

check "a program's arguments and status pass through" 7 '^ranvier-train demo --pp 2$' "$installed" train demo --pp 2
check "simulate runs ranvier-sim" 7 '^ranvier-sim simulate tiny$' "$installed" simulate tiny
check "sweep runs ranvier-sim" 7 '^ranvier-sim sweep tiny$' "$installed" sweep tiny
check "validate runs ranvier-sim" 7 '^ranvier-sim validate --table t.csv$' "$installed" validate --table t.csv
check "compare runs ranvier-plot" 7 '^ranvier-plot compare a b$' "$installed" compare a b
check "a program that is not there is named" 1 'ranvier-sample is neither' "$installed" sample x
check "calibrate runs ranvier-calibrate, which starts its own ranks" 7 '^ranvier-calibrate --quick --ranks 2$' \
        "$installed" calibrate --quick --ranks 2
