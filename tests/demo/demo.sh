#!/bin/bash
# The tour: calibrate this machine, train a small GPT on real text, simulate the same runs, compare, then predict a
# cluster. Everything it makes lies in $OUT (default demo/), with what it printed in report.txt.
# DATA=FILE trains on another text, STEPS=K for as many steps.
# shellcheck disable=SC2086 # the words of $plan, $mpirun and $reports are options
set -eu
out=${OUT:-demo}
steps=${STEPS:-1200}
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

heading "1. What this machine's kernels, copies and messages take, in fp32 and in mixed precision"
show ranvier calibrate --ranks 2 --quick --model demo --micro-batch-size 2 --pp 1,2 --precision fp32,mixed --offload \
        --out "$out/profile.json"

heading "2. A GPT of 3.3 million parameters learns English, byte by byte: two pipeline stages, then two replicas, then offloaded"
plan="--micro-batch-size 2 --batch-size 8"
offload="--precision mixed --offload"
show $mpirun ranvier train demo --pp 2 $plan --data "$data" --steps "$steps" --lr 2e-3 --validate-every 100 \
        --checkpoint "$out/model.safetensors" --log "$out/loss.csv" --report "$out/measured-2x1.json" --trace "$out/trace-real.json"
show $mpirun ranvier train demo --dp 2 $plan --data "$data" --steps 200 --lr 2e-3 --report "$out/measured-1x2.json"
show $mpirun ranvier train demo --dp 2 $plan $offload --data "$data" --steps 200 --lr 2e-3 \
        --report "$out/measured-offload.json" --trace "$out/trace-offload.json"
echo
show ranvier sample "$out/model.safetensors" --prompt "The hacker" --tokens 300 --temperature 0.5

heading "3. The same runs, predicted"
for run in "2x1 --pp 2" "1x2 --dp 2" "offload --dp 2 $offload"; do
        show ranvier simulate demo --precision fp32 ${run#* } $plan --gpus 2 --profile "$out/profile.json" --platform local \
                --report "$out/predicted-${run%% *}.json" --trace "$out/trace-${run%% *}-predicted.json" >/dev/null
done
pairs=""
for run in 2x1 1x2 offload; do
        pairs="$pairs $out/predicted-$run.json $out/measured-$run.json"
done
show ranvier compare "$out/predicted-offload.json" "$out/measured-offload.json"
echo
show ranvier compare $pairs --csv "$out/compare.csv"

heading "4. GPT 12B on V100s of Summit, with and without offloading (datasheet figures: nothing of it was measured here)"
cluster="--profile v100-datasheet --platform summit"
common="--micro-batch-size 1 --batch-size 1536 --precision mixed --recompute full"
echo "What offloading changes in one plan, and what memory makes possible:"
# One prediction: shows the command, then the lines that matter.
predict() { # NAME, then the plan
        name=$1
        shift
        show ranvier simulate gpt-12b --gpus 48 "$@" $common $cluster --report "$out/$name.json" >"$out/$name.txt"
        sed -n '/time per batch/p; /flops per device/p; /device memory/p' "$out/$name.txt"
}
predict gpt-12b-pp24 --pp 24 --dp 2
predict gpt-12b-pp24-offload --pp 24 --dp 2 --offload
predict gpt-12b-pp6-offload --pp 6 --dp 8 --offload
echo
tail -n 3 "$out/gpt-12b-pp24.txt"
printf '\nThe best plans on 48 to 384 GPUs, with and without:\n\n'
show ranvier sweep gpt-12b --gpus 48,96,192,384 --offload both --batch-size 1536 --micro-batch-size 1,2,4 --recompute full \
        $cluster --csv "$out/sweep.csv" --plot "$out/sweep"

heading "5. Figures"
for type in png svg; do
        ranvier plot predicted-measured "$out/predicted-measured.$type" $pairs
        ranvier plot memory "$out/memory.$type" "$out/gpt-12b-pp24.json" "$out/gpt-12b-pp24-offload.json" "$out/gpt-12b-pp6-offload.json"
        ranvier plot timeline "$out/timeline-real.$type" "$out/trace-real.json"
        ranvier plot timeline "$out/timeline-simulated.$type" "$out/trace-2x1-predicted.json"
        ranvier plot optimizer "$out/optimizer.$type" "$out/trace-offload.json"
        ranvier plot loss "$out/loss.$type" "$out/loss.csv" "$out/measured-2x1.json"
done

heading "6. All of it on one page"
# shellcheck disable=SC2086 # pairs are names of files without blanks
show ranvier report "$out/report.html" $pairs "$out"/gpt-12b-*.json "$out/sweep.csv" "$out/trace-real.json" "$out/trace-2x1-predicted.json"
ls "$out"
echo
echo "Open $out/report.html in a browser; $out/*.png; or a trace ($out/trace-*.json) in chrome://tracing or Perfetto."
