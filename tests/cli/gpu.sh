#!/bin/bash
# make bench-gpu and make test-gpu: without a GPU a sentence and status 2; on the emulated GPU their own logic, with
# figures that mean nothing and say so.
set -u
. "$(dirname "$0")/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
emulated=$(dirname "$RANVIER_BIN")/emulated/device_cuda.so
echo 1..6

# No plugin stands for no GPU: what is missing is one sentence of the device's own in either case.
for script in tests/bench/gpu.py tests/gpu/test.sh; do
        RANVIER_DEVICE_CUDA=$folder/none.so "$script" >"$folder/out" 2>"$folder/err" </dev/null
        [ $? -eq 2 ] && [ "$(wc -l <"$folder/err")" -eq 1 ] && grep -q "cuda" "$folder/err" && [ ! -s "$folder/out" ]
        result "without a GPU $script says so in one sentence, with status 2" || sed 's/^/# /' "$folder/err"
done
tests/bench/gpu.py everything >"$folder/out" 2>&1
[ $? -eq 2 ] && grep -q "there is no part 'everything'" "$folder/out"
result "neither is there a part of the benchmark that nobody wrote"

RANVIER_DEVICE_CUDA=$emulated tests/bench/gpu.py --tiny --steps 3 --out "$folder" gpt offload >"$folder/out" 2>&1
result "the benchmark's rates, model and offloading are measured on the emulated GPU" || sed 's/^/# /' "$folder/out"
grep -q '^device .*emulated' "$folder/out" && grep -q 'without graphs: ' "$folder/out"
result "which its table names, with graphs and without" || sed 's/^/# /' "$folder/out"
python3 - "$folder/gpu.json" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
gpt, offload = r["gpt"][0], r["offload"]
flops = 72 * 2 * 16 * 2 * 32**2 * (1 + 16 / (6 * 32) + 256 / (12 * 2 * 32))
seconds = gpt["seconds"]["median"]
assert abs(gpt["flops_per_second"] * seconds / flops - 1) < 1e-9, gpt
assert abs(gpt["tokens_per_second"] * seconds / 32 - 1) < 1e-9, gpt
assert abs(gpt["percent_of_matrix_rate"] / 100 * r["rate"]["flops_per_second"]["median"] * seconds / flops - 1) < 1e-9
assert gpt["graphs_gain"] > 0 and offload["off"]["state_bytes"] > offload["on"]["state_bytes"] > 0, offload
END
result "and the file has what they are made of"
