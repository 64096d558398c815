#!/bin/sh
# The scheduling core is pure: its objects need nothing but a few functions of the C library, it links alone, and the
# programs of both worlds are linked from the same archive.
build=$(dirname "$RANVIER_BIN")
echo "1..3"
allowed='memcpy|memmove|memset|memcmp|strcmp|__assert_fail|__asan_.*|__ubsan_.*|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_'
defined=$(nm --defined-only "$build/libcore.a" | awk 'NF == 3 { print $3 }' | paste -sd'|')
foreign=$(nm -u "$build/libcore.a" | awk '$1 == "U" { print $2 }' | sort -u | grep -Evx "$allowed|$defined")
[ -z "$foreign" ] && echo "ok 1 - the core references nothing outside the C library's memory functions and assert" ||
        { echo "not ok 1 - the core references nothing outside the C library's memory functions and assert"; echo "# $foreign"; }

alone=$(mktemp)
trap 'rm -f "$alone"' EXIT
sanitizers=$(echo "$build" | grep -q san && echo -fsanitize=address,undefined)
if echo 'int main(void) { return 0; }' | ${CC:-cc} $sanitizers -x c - -x none -Wl,--whole-archive "$build/libcore.a" \
        -Wl,--no-whole-archive -o "$alone" 2>&1; then
        echo "ok 2 - all of the core links with nothing but the C library"
else
        echo "not ok 2 - all of the core links with nothing but the C library"
fi

# The archive is linked into both: each of its functions is in both programs, with the same size.
sizes() { nm -S --defined-only "$1" | awk 'NF == 4 && $3 ~ /[tT]/ { print $4, $2 }' | grep -E "^(core_|optimizer_|activations_|staging_|buffer_|policy_)" | sort -u; }
sizes "$build/libcore.a" >"$alone"
if [ -s "$alone" ] && [ -z "$(sizes "$RANVIER_BIN/ranvier-train" | comm -13 - "$alone")" ] &&
        [ -z "$(sizes "$RANVIER_BIN/ranvier-sim" | comm -13 - "$alone")" ]; then
        echo "ok 3 - ranvier-train and ranvier-sim carry the functions of this archive, size by size"
else
        echo "not ok 3 - ranvier-train and ranvier-sim carry the functions of this archive, size by size"
fi
