#!/bin/sh
# Layout (clang-format), defects (cppcheck, shellcheck), the include arrows, scripts that no suite runs. Silent if clean.
cd "$(dirname "$0")/.." || exit 2
sources=$(git ls-files --cached --others --exclude-standard '*.c' '*.h')
in_cpp=$(git ls-files 'sim/*.cpp')
[ -n "$sources" ] || { echo "lint: git lists no sources here" >&2; exit 2; }
status=0
# shellcheck disable=SC2086 # words are files
clang-format --dry-run -Werror $sources $in_cpp || status=1
# shellcheck disable=SC2086
cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -I. -D__x86_64__ -D_POSIX_C_SOURCE=200809L \
        --enable=warning,performance,portability --suppress=missingIncludeSystem --suppress=ctuuninitvar $sources || status=1
git ls-files '*.sh' .ci/run | xargs shellcheck --severity=warning || status=1
tests/arrows.sh || status=1
for script in tests/cli/*; do
        [ -x "$script" ] || continue # what the others import
        grep -q "$script" Makefile tests/tests.mk tests/mk/*.mk || { echo "lint: no suite runs $script" >&2; status=1; }
done
exit $status
