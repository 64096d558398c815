#!/bin/bash
# The tour: calibrate this machine, train a small GPT on real text, simulate the same runs, compare, then predict a
# cluster. Everything it makes lies in $OUT (default demo/), with what it printed in report.txt.
# DATA=FILE trains on another text, STEPS=K for as many steps.
# shellcheck disable=SC2086 # the words of $plan, $mpirun and $reports are options
set -eu
out=${OUT:-demo}
steps=${STEPS:-1300}
bin=$1
mkdir -p "$out"
if [ -z "${RANVIER_DEMO_TEE:-}" ]; then # once more, with what it prints also in a file
        set -o pipefail
        RANVIER_DEMO_TEE=1 "$0" "$@" | tee "$out/report.txt"
        exit
fi
PATH=$bin:$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers run as root

heading() { printf '\n== %s\n\n' "$*"; }
# Shows a command, also where its output goes to a file, then runs it.
exec 3>&1
show() {
        printf '$ %s\n' "$*" >&3
        "$@"
}

mpirun="mpirun -n 2"
if [ "$(lscpu -p=CORE | grep -v '^#' | sort -u | wc -l)" -lt 2 ]; then
        echo "demo: two ranks will share this machine's one core, and predictions will be off" >&2
        mpirun="mpirun --oversubscribe -n 2"
fi
data=${DATA:-$out/text.txt}
[ -n "${DATA:-}" ] || "$(dirname "$0")/text.sh" "$data"

heading "1. What this machine's kernels, copies and messages take"
show ranvier calibrate --ranks 2 --quick --model demo --micro-batch-size 2 --pp 1,2 --out "$out/profile.json"

heading "2. A GPT of 3.3 million parameters learns English, byte by byte: two pipeline stages, then two replicas"
plan="--micro-batch-size 2 --batch-size 8"
show $mpirun ranvier train demo --pp 2 $plan --data "$data" --steps "$steps" --lr 2e-3 --validate-every 100 \
        --checkpoint "$out/model.safetensors" --log "$out/loss.csv" --report "$out/measured-2x1.json" --trace "$out/trace-real.json"
show $mpirun ranvier train demo --dp 2 $plan --data "$data" --steps 200 --lr 2e-3 --report "$out/measured-1x2.json"
echo
show ranvier sample "$out/model.safetensors" --prompt "The hacker" --tokens 300 --temperature 0.5

heading "3. The same runs, predicted"
for grid in "2x1 --pp 2" "1x2 --dp 2"; do
        show ranvier simulate demo ${grid#* } $plan --gpus 2 --profile "$out/profile.json" --platform local \
                --report "$out/predicted-${grid%% *}.json" --trace "$out/trace-${grid%% *}.json" >/dev/null
done
show ranvier compare "$out/predicted-2x1.json" "$out/measured-2x1.json"
echo
show ranvier compare "$out/predicted-2x1.json" "$out/measured-2x1.json" "$out/predicted-1x2.json" "$out/measured-1x2.json" \
        --csv "$out/compare.csv"

heading "4. GPT 12B on 48 to 384 GPUs of a generic cluster (datasheet figures: nothing of it was measured)"
cluster="--profile a100-datasheet --platform generic"
# One prediction: shows the command, then the lines that matter.
predict() { # NAME, then the plan
        name=$1
        shift
        show ranvier simulate gpt-12b "$@" --micro-batch-size 2 --batch-size 1536 $cluster --report "$out/$name.json" >"$out/$name.txt"
        sed -n '/time per batch/p; /flops per device/p; /training/p; /device memory/p' "$out/$name.txt"
}
reports=""
for replicas in 4 8 16 32; do
        gpus=$((12 * replicas))
        predict gpt-12b-$gpus --gpus $gpus --pp 12 --dp $replicas
        reports="$reports $out/gpt-12b-$gpus.json"
done
printf '\nWhat memory buys: on the same 48 GPUs, fewer stages hold more of the model each, and idle less.\n\n'
predict gpt-12b-pp24 --gpus 48 --pp 24 --dp 2
predict gpt-12b-pp6 --gpus 48 --pp 6 --dp 8
echo
tail -n 3 "$out/gpt-12b-48.txt"
echo
echo "All of this is without offloading: --offload is not built yet."

heading "5. Figures"
for type in png svg; do
        ranvier plot throughput "$out/throughput.$type" $reports
        ranvier plot predicted-measured "$out/predicted-measured.$type" "$out/predicted-2x1.json" "$out/measured-2x1.json" \
                "$out/predicted-1x2.json" "$out/measured-1x2.json"
        ranvier plot memory "$out/memory.$type" "$out/gpt-12b-pp24.json" "$out/gpt-12b-48.json" "$out/gpt-12b-pp6.json"
        ranvier plot timeline "$out/timeline-real.$type" "$out/trace-real.json"
        ranvier plot timeline "$out/timeline-simulated.$type" "$out/trace-2x1.json"
        ranvier plot loss "$out/loss.$type" "$out/loss.csv"
done
ls "$out"
echo
echo "Open $out/*.png, or a trace ($out/trace-*.json) in chrome://tracing or Perfetto."
