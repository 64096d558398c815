#!/bin/bash
# Every target of the fuzzer on its corpus, on its seeds, and on what large.py makes, by a program without the fuzzer: what was
# found once stays mended.
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/../cli/tap.sh"
cd "$(dirname "$0")/../.." || exit 2
# shellcheck source=tests/fuzz/seeds.sh
. tests/fuzz/seeds.sh
replay=${RANVIER_BIN%/bin}/tests/fuzz_replay
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mkdir "$folder/large" && tests/fuzz/large.py "$folder/large"
while IFS='|' read -r name _ seeds _; do
        case "$name" in '#'* | '') continue ;; esac
        seeds "$name" "$seeds" "$folder/$name"
        mv "$folder/large/$name".* "$folder/$name/" 2>/dev/null
        files=("$folder/$name"/*)
        [ -f "${files[0]}" ] && given=$(timeout 60 "$replay" "$name" "${files[@]}" 2>"$folder/said" </dev/null) &&
                [ "$given" = "${#files[@]}" ]
        result "$name: ${#files[@]} inputs" || tail -n 40 "$folder/said"
done <tests/fuzz/targets
echo "1..$count"
