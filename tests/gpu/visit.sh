#!/bin/bash
# A visit to a GPU that may end at any time, in seven parts of at most ten minutes each, the more telling ones first:
#
#     tests/gpu/visit.sh a|b|c|d|e|f|g [FOLDER]      (of a package: bash ranvier-gpu/tree/tests/gpu/visit.sh a)
#
#   a   is it right, how fast is it, where does the time go: conformance, rates, GPT-2 124M and 1.5B, kernel by kernel
#   b   losses over fifty steps, layouts, offloading, compute-sanitizer where there is one
#   c   the profile of this GPU, to keep; its kernels against their limits, offloading
#   d   ten plans predicted and measured, PyTorch's GPT-2, hardware counters where there is ncu
#   e   two shards that share the GPU, logits in parts and at once, other families predicted and measured
#   f   cuDNN's attention: is it right, how fast is it (--attention cudnn)
#   g   PyTorch's steps predicted from a trace of them, checkpoints beside a training, a mixture of experts
#
# Each step has a limit of its own, a log in FOLDER (default: visit) and a line in FOLDER/steps.tsv (part, step, status,
# seconds); one that fails does not stop the part. Without a GPU the first step says so, and the part ends with status 2.
# tests/gpu/read_visit.py FOLDER makes a report of it. TINY=1 takes shapes that an emulated GPU can do.
set -u
case ${1:-} in
a | b | c | d | e | f | g) part=$1 ;;
*)
        echo "visit: name a part: visit.sh a|b|c|d|e|f|g [FOLDER]" >&2
        exit 2
        ;;
esac
mkdir -p "${2:-visit}" || exit 1
out=$(cd "${2:-visit}" && pwd)
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=/dev/null # of the package
[ ! -e ../environment.sh ] || . ../environment.sh
export RANVIER_BIN=${RANVIER_BIN:-$PWD/build/bin} PYTHONUNBUFFERED=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export RANVIER_DEVICE_CUDA=${RANVIER_DEVICE_CUDA:-$RANVIER_BIN/device_cuda.so}
# Programs look for plugins beside themselves, the tests' in the folder of the programs.
[ -n "${RANVIER_ATTENTION_CUDNN:-}" ] || [ ! -e "$RANVIER_BIN/attention_cudnn.so" ] || export RANVIER_ATTENTION_CUDNN=$RANVIER_BIN/attention_cudnn.so
export RANVIER_TEST_DEVICE=cuda CMOCKA_MESSAGE_OUTPUT=TAP
programs=$(dirname "$RANVIER_BIN")/tests
PATH=$PATH:/usr/local/cuda/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { # NAME LIMIT COMMAND...
        local name=$1 limit=$2 start=$SECONDS status
        shift 2
        timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null
        status=$?
        printf '%s\t%s\t%d\t%d\n' "$part" "$name" $status $((SECONDS - start)) >>"$out/steps.tsv"
        printf '%-24s %s, %d s\n' "$name" "$([ $status -eq 0 ] && echo 'ended well' || echo "status $status")" $((SECONDS - start))
        return $status
}

model() { # PRESET VOCABULARY: writes the preset with that vocabulary, and says where
        local file=$work/$1-$2.json
        python3 - "$1" "$2" "$file" "${TINY:-}" <<'PYTHON'
import json, sys
preset, vocabulary, path, tiny = sys.argv[1:]
config = json.load(open(f"models/presets/{preset}.json"))
config["vocab_size"] = int(vocabulary)
if tiny:
    config.update(n_layer=2, n_embd=32, n_head=2, vocab_size=256 + (int(vocabulary) % 64 > 0), n_positions=16)
json.dump(config, open(path, "w"))
PYTHON
        echo "$file"
}

train() { # NAME LIMIT MODEL MICRO-BATCH BATCH STEPS MORE...
        local name=$1 limit=$2 model=$3 micro=$4 batch=$5 steps=$6
        shift 6
        [ -z "${TINY:-}" ] || micro=1 batch=2
        [ -z "${TINY:-}" ] || [ "${1:-}" != --kernels ] || shift # which also measures a product that an emulation has no time for
        step "$name" "$limit" mpirun --bind-to none -n 1 "$RANVIER_BIN/ranvier" train "$model" --device cuda --precision bf16 --fusion on \
                --data "$work/text.txt" --validation-fraction 0 --micro-batch-size "$micro" --batch-size "$batch" --steps "$steps" \
                --log "$out/$name.csv" --report "$out/$name.json" "$@"
}

end() {
        command -v nvidia-smi >/dev/null && nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE >"$out/clocks-$part.log" 2>&1
        echo "part $part is over: tests/gpu/read_visit.py $out makes a report of it"
        exit "${1:-0}"
}

python3 -c 'import sys; sys.path.insert(0, "tests/cli"); import text; text.write(sys.argv[1], 2000000)' "$work/text.txt"
if ! step "device-$part" 60 "$programs/gpu" describe; then
        cat "$out/device-$part.log" >&2
        end 2
fi
small=$(model gpt2-124m 50304) large=$(model gpt2-1.5b 50304)
sizes="8192 16384"
[ -z "${TINY:-}" ] || sizes="64 128"

case $part in
a)
        {
                uname -a
                command -v nvidia-smi compute-sanitizer ncu mpirun
                nvidia-smi -q
                ldd "$RANVIER_DEVICE_CUDA" "$RANVIER_BIN"/ranvier-*
        } >"$out/machine.log" 2>&1
        # One group of kernels that is wrong, or never ends, leaves the others alone.
        # They hardly load a GPU: side by side all took 11 s on an H200.
        for group in 'memory_is*' 'what_was*' 'tokens_come*' 'lanes_work*' 'the_recorder*' 'groups_do*' 'elementwise*' 'layernorms*' 'rmsnorms*' \
                'norms_of*' 'rotary*' 'columns*' 'latent*' 'routes*' 'corrected*' 'permutations*' 'products_of*' 'weighted*' 'gradients_in*' \
                'embeddings*' 'softmaxes*' 'cross*' 'squared*' 'adamw*' 'half_*' 'products_conform' 'fused_products*' 'products_with*' \
                'attention_conforms' 'attention_backward*' 'attention_of*'; do
                step "conformance-${group%\*}" 75 "$programs/test_conformance" "$group" &
        done
        wait
        for size in $sizes; do
                step "rate-$size" 60 "$programs/gpu" rate "$size"
        done
        train 124m 60 "$small" 16 64 12
        train 124m-no-graphs 60 "$small" 16 64 12 --cuda-graphs off
        train 124m-kernels 60 "$small" 16 64 6 --kernels
        train 124m-50257-words 60 "$(model gpt2-124m 50257)" 16 64 8 --kernels
        train 1.5b 120 "$large" 4 32 6
        train 1.5b-kernels 120 "$large" 4 32 4 --kernels
        train 1.5b-one-bucket 120 "$large" 4 32 6 --bucket-params "$([ -n "${TINY:-}" ] && echo 34000 || echo 1557000000)" # nearly all
        ;;
b)
        step losses 200 python3 tests/gpu/loss.py
        step offload 150 python3 tests/cli/offload.py
        if command -v compute-sanitizer >/dev/null; then
                for check in memcheck:'attention*' racecheck:'attention*' racecheck:'layernorms*' memcheck:'embeddings*' \
                        initcheck:'attention_backward*'; do
                        step "${check%:*}-$(tr -cd a-z_ <<<"${check#*:}")" 60 compute-sanitizer --tool "${check%:*}" "$programs/test_conformance" \
                                "${check#*:}"
                done
        fi
        step layouts 150 python3 tests/cli/equivalence.py
        ;;
c)
        models=$small micro=1
        if [ -z "${TINY:-}" ]; then
                models=$small,$(model gpt2-350m 50304),$(model gpt2-774m 50304),$large micro=4,8,16
        fi
        step calibrate 240 "$RANVIER_BIN/ranvier" calibrate --device cuda --precision bf16 --fusion on --pp 1 --model "$models" \
                --micro-batch-size "$micro" --quick --time-products --out "$out/profile.json"
        train 124m-timed 60 "$small" 16 64 12 --products "$out/profile.json"
        step bench 300 python3 tests/bench/gpu.py gpt offload kernels ${TINY:+--tiny} --out "$out/bench"
        ;;
d)
        step prediction 360 python3 tests/bench/gpu.py prediction ${TINY:+--tiny} --out "$out/bench-prediction"
        step pytorch 100 python3 tests/bench/gpt2_pytorch.py --micro-batch-size 16 --batch-size 64
        if command -v ncu >/dev/null; then
                step counters 140 ncu --clock-control none --target-processes all --metrics gpu__time_duration.sum -c 330 --csv mpirun --bind-to none \
                        -n 1 "$RANVIER_BIN/ranvier" train "$small" --device cuda --precision bf16 --fusion on --data "$work/text.txt" \
                        --validation-fraction 0 --micro-batch-size 16 --batch-size 16 --steps 1 --cuda-graphs off
        fi
        ;;
e)
        step shards 120 python3 tests/gpu/loss.py shards
        step calibrate-logits 60 "$RANVIER_BIN/ranvier" calibrate --device cuda --precision bf16 --fusion on --pp 1 --model "$small" \
                --micro-batch-size "$([ -n "${TINY:-}" ] && echo 1 || echo 16)" --quick --seconds 8 --time-products --out "$out/profile-124m.json"
        train 124m-timed 40 "$small" 16 64 12 --products "$out/profile-124m.json"
        train 124m-at-once 40 "$small" 16 64 12 --logits all
        train 124m-in-parts 40 "$small" 16 64 12 --logits 128MiB
        step families 300 python3 tests/bench/gpu.py families ${TINY:+--tiny} --out "$out/bench-families"
        ;;
f)
        for group in attention_conforms attention_backward_conforms; do
                step "cudnn-$group" 150 env RANVIER_TEST_ATTENTION=auto "$programs/test_conformance" "$group"
        done
        for round in 1 2; do # in turns
                train 124m-ours-$round 60 "$small" 16 64 12
                train 124m-cudnn-$round 60 "$small" 16 64 12 --attention cudnn
        done
        train 124m-cudnn-kernels 60 "$small" 16 64 6 --kernels --attention cudnn
        train 1.5b-ours 120 "$large" 4 32 6
        train 1.5b-cudnn 120 "$large" 4 32 6 --attention cudnn
        step calibrate-cudnn 60 "$RANVIER_BIN/ranvier" calibrate --device cuda --precision bf16 --fusion on --pp 1 --model "$small" \
                --micro-batch-size "$([ -n "${TINY:-}" ] && echo 1 || echo 16)" --quick --seconds 8 --attention cudnn --out "$out/profile-cudnn.json"
        ;;
g)
        if [ -z "${TINY:-}" ]; then
                step traces 200 python3 tests/bench/trace.py --device cuda --transformers --rounds 3 --steps 4 --keep "$out/traces" --out "$out/traces.json"
                step checkpoints 150 python3 tests/bench/checkpoints.py --device cuda --runs 3 --every 15
        fi
        step mixture 200 python3 tests/bench/gpu.py mixture ${TINY:+--tiny} --out "$out/bench-mixture"
        ;;
esac
end
