#!/bin/bash
# What needs a GPU, or the emulated one that RANVIER_DEVICE_CUDA may name: the conformance of every kernel with the CPU
# device's, the same losses on every layout, the CPU device's losses over 50 steps, offloading, and conformance once more
# under compute-sanitizer. Prints "N passed, N failed"; without a GPU one sentence, and ends with status 2.
#
#     tests/gpu/test.sh [conformance] [equivalence] [loss] [offload] [sanitizer]       (make test-gpu PARTS="...")
set -u
cd "$(dirname "$0")/../.." || exit 1
folder=$(dirname "$RANVIER_BIN")/tests
[ -n "${RANVIER_DEVICE_CUDA:-}" ] || export RANVIER_DEVICE_CUDA=$RANVIER_BIN/device_cuda.so
if ! device=$("$folder/gpu" describe 2>&1); then
        echo "test-gpu: ${device#gpu: }" >&2
        exit 2
fi
sed -n 's/^ "\(name\|driver\)": "\(.*\)",\?$/\1 \2/p' <<<"$device"

export RANVIER_TEST_DEVICE=cuda RANVIER_CONFORMANCE=$folder/test_conformance
tests=()
[ $# -gt 0 ] || set -- conformance equivalence loss offload sanitizer
for part in "$@"; do
        case $part in
        conformance) tests+=("$RANVIER_CONFORMANCE") ;;
        equivalence) tests+=(tests/cli/equivalence.py) ;;
        loss) tests+=(tests/gpu/loss.py) ;;
        offload) tests+=(tests/cli/offload.py) ;;
        sanitizer)
                if command -v compute-sanitizer >/dev/null; then
                        tests+=(tests/gpu/sanitizer.sh)
                else
                        echo "compute-sanitizer is not installed: nothing is run under it"
                fi
                ;;
        *)
                echo "test-gpu: there is no part '$part', only conformance, equivalence, loss, offload and sanitizer" >&2
                exit 2
                ;;
        esac
done
tests/run.sh "${tests[@]}"
