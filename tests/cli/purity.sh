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

# The linker's maps of both programs: of the core they have members of this archive, and the same ones.
members() { grep -o 'libcore\.a([a-z_]*\.o)' "$build/obj/$1.map" | sort -u; }
trained=$(members ranvier-train) simulated=$(members ranvier-sim)
if [ -n "$trained" ] && [ "$trained" = "$simulated" ]; then
        echo "ok 3 - ranvier-train and ranvier-sim are linked from the same members of the core's archive"
else
        echo "not ok 3 - ranvier-train and ranvier-sim are linked from the same members of the core's archive"
        echo "# $trained / $simulated"
fi
