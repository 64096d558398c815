#!/bin/sh
# Installs the Debian or Ubuntu packages that are missing, after saying which. DEPS=0 skips it.
#   tests/deps.sh build | demo | test | transformers | perfetto | lint | fuzz
# Prints what building needs and is not found, a line each, and installs nothing:
#   tests/deps.sh missing
set -eu
[ "${DEPS:-1}" = 0 ] && exit 0
if [ "${1:-}" = missing ]; then
        compiler=${CC:-cc}
        if ! command -v "${compiler%% *}" >/dev/null; then
                echo "a C compiler ($compiler)"
                exit 0
        fi
        found=${CXX:-c++}
        command -v "${found%% *}" >/dev/null || echo "a C++ compiler ($found)"
        command -v mpicc >/dev/null || echo "mpicc"
        for header in simgrid/version.h gsl/gsl_version.h cblas.h jansson.h yaml.h zlib.h xxhash.h; do
                # shellcheck disable=SC2086,SC2046 # words are a command, and flags
                echo "#include <$header>" | $compiler ${CFLAGS:-} $(pkg-config --cflags openblas 2>/dev/null) -E - >/dev/null 2>&1 || echo "$header"
        done
        exit 0
fi
command -v dpkg-query >/dev/null || { echo "deps: no dpkg here: install the packages of docs/develop.md by hand, then DEPS=0" >&2; exit 1; }

build="build-essential pkg-config libopenmpi-dev openmpi-bin libsimgrid-dev libgsl-dev libopenblas-dev libjansson-dev libyaml-dev zlib1g-dev libxxhash-dev"
# Ubuntu's package starts a snap, which containers do not have: there pages are tested without a browser.
browser=""
[ ! -r /etc/debian_version ] || grep -q '^ID=ubuntu' /etc/os-release || browser=" chromium"
case "${1:-build}" in
build) wanted="$build" ;;
demo) wanted="$build gnuplot-nox" ;;
test) wanted="$build gnuplot-nox libcmocka-dev libboost-context-dev python3 python3-numpy python3-torch man-db mandoc zsh$browser" ;;
transformers) wanted="$build python3 python3-numpy python3-torch python3-venv" ;;
perfetto) wanted="$build python3 python3-venv$browser" ;;
lint) wanted="clang-format cppcheck git shellcheck" ;;
fuzz) wanted="$build clang libclang-rt-dev" ;;
*) echo "deps: '$1' is not known; there are build, demo, test, transformers, perfetto, lint, fuzz" >&2; exit 2 ;;
esac

missing=""
for package in $wanted; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo"
echo "deps: installing$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086 # words are packages
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
