#!/bin/bash
# ranvier simulate: against closed forms, against itself (replay), and what it refuses.
set -u
ranvier=$RANVIER_BIN/ranvier
fixtures=$(cd "$(dirname "$0")/../fixtures" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/tap.sh"

# The closed-form job: every layer's forward takes 60 ms, its backward 180 ms; a message is 36.96 MB.
job() { # LAYERS STAGES MICRO_BATCHES LINKS SCHEDULE [OPTION...]
        "$ranvier" simulate "$fixtures/model_$1_layers.json" --profile "$fixtures/profile_60_180.json" \
                --platform "$fixtures/platform_$4_links.json" --gpus "$2" --pp "$2" --micro-batch-size 6 \
                --batch-size $((6 * $3)) --clip 0 --schedule "$5" --report "$folder/report.json" "${@:6}"
}

# Whether a Python expression over the report r holds; message is c, tf + tb is s.
holds() {
        python3 - "$folder/report.json" "$1" <<'END'
import json, math, sys
r = json.load(open(sys.argv[1]))
batch, phases, memory = r["batch_seconds"]["median"], r["phases"], r["memory"]
c, s = 36.96e6 / 10e9 + 2e-6, 0.24
def close(found, expected, tolerance=1e-6):
    return abs(found - expected) <= tolerance * expected
if not eval(sys.argv[2]):
    print("# not so: %s; batch %.9f s, phases %s" % (sys.argv[2], batch, phases))
    sys.exit(1)
END
}

echo 1..133

# ---- closed forms: p stages, m micro-batches ----
for schedule in gpipe 1f1b axonn; do
        job 4 4 16 instant $schedule >"$folder/out" && holds "close(batch, (16 + 4 - 1) * s)"
        result "without messages $schedule takes (m + p - 1)(tf + tb)"
        holds "close(phases['bubble_fraction'], 3 / 19, 1e-5)"
        result "and its bubble is (p - 1)/(m + p - 1)"
done
for chunks in 2 6; do # of 4 stages' 24 layers: a rank has 6, and the bubble is a V-th of a stage's
        job 24 4 16 instant interleaved --virtual-stages $chunks >"$folder/out" &&
                holds "close(batch, 16 * 6 * s + 3 * 6 * s / $chunks)"
        result "without messages $chunks chunks a rank take m (tf + tb) + (p - 1)(tf + tb) / V"
        holds "close(phases['bubble_fraction'], 3 / (16 * $chunks + 3), 1e-5)"
        result "and their bubble is (p - 1)/(m V) of the work"
done
job 4 4 1 10gb axonn >"$folder/out" && holds "close(batch, 4 * s + 2 * 3 * c, 2e-5)"
result "one micro-batch takes p(tf + tb) + 2(p - 1)c"
for limit in 4 8; do # steady time: the difference of two lengths
        job 4 4 80 10gb axonn --pipeline-limit $limit >"$folder/out"
        long=$(python3 -c "import json; print(json.load(open('$folder/report.json'))['batch_seconds']['median'])")
        job 4 4 40 10gb axonn --pipeline-limit $limit >"$folder/out" &&
                holds "close(($long - batch) / 40, max(s, (4 * s + 2 * 3 * c) / $limit), 1e-4)"
        result "a micro-batch of axonn costs max(tf + tb, round trip / $limit)"
done
# What other engines give: LogGOPSim 21.512 s, an SMPI replay 21.535 s, ASTRA-sim's analytical network 21.452 s. In
# the first two a rank computes nothing while its message leaves, so every micro-batch pays 2c; our message lanes run
# beside the compute lane, and the first of every p micro-batches under way hides its own.
job 24 24 64 10gb 1f1b >"$folder/out" && holds "21.452 <= batch <= 21.535"
result "1f1b of 24 stages and 64 micro-batches lies between what independent engines agree on"
holds "close(batch, (64 + 23) * s + 2 * 23 * c + 2 * (64 - 1 - math.ceil(64 / 24)) * c)"
result "and is the closed form of asynchronous messages"
job 24 24 64 10gb 1f1b --p2p blocking >"$folder/out" && holds "close(batch, 21.512, 2e-5)"
result "with blocking messages it is what LogGOPSim gives"
holds "close(batch, (64 + 23) * s + (2 * (64 + 24) - 5) * c)"
result "and the closed form of blocking messages"
job 4 4 16 10gb gpipe --p2p blocking >"$folder/out" && holds "close(batch, 19 * s + (4 * 16 + 2 * 4 - 6) * c)"
result "gpipe with blocking messages is its closed form"

# Each within 0.5 % of what LogGOPSim and the SMPI replay give; 384 x 1,024 is make bench-engines.
near() { holds "all(abs(batch / other - 1) <= 0.005 for other in ($1, $2))"; }
for p2p in async blocking; do
        job 24 24 64 10gb 1f1b --p2p $p2p >"$folder/out" && near 21.512 21.535
        result "24 x 64 with $p2p messages lies within 0.5 % of LogGOPSim and SMPI"
        job 24 24 1024 10gb 1f1b --p2p $p2p >"$folder/out" && near 259.013 259.391
        result "24 x 1,024 with $p2p messages lies within 0.5 % of LogGOPSim and SMPI"
done

# ---- all-reduces, batches, platforms ----
"$ranvier" simulate "$fixtures/model_4_layers.json" --profile "$fixtures/profile_60_180.json" \
        --platform "$fixtures/platform_10gb_links.json" --gpus 2 --dp 2 --micro-batch-size 6 --batch-size 24 \
        --clip 0 --allreduce-buckets 100 --report "$folder/report.json" >"$folder/out" &&
        holds "close(phases['allreduce_seconds'], 2 * (2e-6 + memory['by_category']['gradients'] / 2 / 10e9), 1e-4)"
result "two replicas all-reduce in two steps of half their gradients"
job 4 4 16 instant axonn --batches 3 >"$folder/out" &&
        holds "r['batch_seconds']['batches'] == 3 and close(r['batch_seconds']['p10'], 19 * s) and close(r['batch_seconds']['p90'], 19 * s)"
result "batches that follow each other take the time of one"
# A profile in which one kernel of a layer was measured, at 20 ms; its model says nothing.
python3 - "$fixtures" "$folder/points.json" <<'END'
import json, sys
model = json.load(open(sys.argv[1] + "/model_4_layers.json"))
profile = json.load(open(sys.argv[1] + "/profile_60_180.json"))
profile["loads"][0]["kernels"]["bias"]["points"] = [
    {"m": 6 * model["n_positions"], "n": 3 * model["n_embd"], "k": 0, "batch": 1, "seconds": 0.02, "p10": 0.02, "p90": 0.02,
     "samples": 9}]
json.dump(profile, open(sys.argv[2], "w"))
END
basis="(r['profile']['kernels_from_points'], r['profile']['fits_only'], len(r['notes']))"
job 4 4 16 instant gpipe --profile "$folder/points.json" >"$folder/out" &&
        holds "close(batch, 19 * (s + 0.02)) and $basis == (1, False, 1) and r['notes'][0].startswith('1 of ')"
result "a kernel that was measured takes what was measured"
job 4 4 16 instant gpipe --profile "$folder/points.json" --fits-only >"$folder/out" &&
        holds "close(batch, 19 * s) and $basis == (0, True, 1) and '--fits-only' in r['notes'][0]" &&
        grep -q '^kernels .* as --fits-only asks' "$folder/out"
result "--fits-only prices it by its fit, and report and table say so"
job 4 4 16 10gb axonn --platform-xml "$folder/platform.xml" >"$folder/out"
ours=$(python3 -c "import json; print(json.load(open('$folder/report.json'))['batch_seconds']['median'])")
job 4 4 16 10gb axonn --platform "$folder/platform.xml" >"$folder/out" && holds "close(batch, $ours)"
result "a SimGrid file as it is gives what the platform gave that wrote it"

# ---- replay ----
plan=(simulate gpt-12b --gpus 12 --pp 6 --dp 2 --micro-batch-size 1 --batch-size 24 --seq-len 512)
datasheet=(--profile a100-datasheet --precision fp32 --platform generic)
"$ranvier" "${plan[@]}" "${datasheet[@]}" --report "$folder/report.json" >"$folder/out"
"$ranvier" "${plan[@]}" "${datasheet[@]}" --batches 2 --trace "$folder/trace.json" >"$folder/out"
first=$(python3 -c "import json; print(json.load(open('$folder/report.json'))['batch_seconds']['median'])")
"$ranvier" "${plan[@]}" --replay "$folder/trace.json" >"$folder/out" &&
        grep -q "^decisions: \([0-9]*\) of \1 identical on 12 ranks" "$folder/out"
result "a replayed trace makes the same decisions on every rank"
"$ranvier" "${plan[@]}" --replay "$folder/trace.json" --replay-batch 0 --report "$folder/report.json" >"$folder/out" &&
        holds "close(batch, $first, 1e-6)"
result "and takes the time that was recorded"
python3 - "$folder/trace.json" "$folder/other.json" <<'END'
import json, sys
lines = open(sys.argv[1]).read().split("\n")
places = []
for number, line in enumerate(lines):
    if '"ph":"X"' in line:
        event = json.loads(line.rstrip(","))
        args = event["args"]
        if event["pid"] == 2 and args["kind"] == "forward" and args["batch"] == 1:
            places.append((args["order"], number, event))
places.sort(key=lambda place: place[0])
(_, i, a), (_, j, b) = places[2], places[3]
a["args"]["order"], b["args"]["order"] = b["args"]["order"], a["args"]["order"]
lines[i] = json.dumps(a) + ("," if lines[i].endswith(",") else "")
lines[j] = json.dumps(b) + ("," if lines[j].endswith(",") else "")
open(sys.argv[2], "w").write("\n".join(lines))
END

# refused SENTENCE STATUS PATTERN COMMAND...: exit status, a pattern in what it says, one line of it
refused() {
        local sentence=$1 status=$2 pattern=$3 said found
        shift 3
        said=$("$@" 2>&1 >/dev/null)
        found=$?
        [ $found -eq "$status" ] && grep -qE -- "$pattern" <<<"$said" && [ "$(wc -l <<<"$said")" -eq 1 ]
        result "$sentence" || echo "# status $found, $status was expected; said: ${said//$'\n'/$'\n'# }"
}
refused "a trace with other decisions is told from the first difference" 1 \
        'rank 2 decided differently: forward of micro-batch' \
        "$ranvier" "${plan[@]}" --replay "$folder/other.json"
refused "a trace of another plan is refused" 2 'a run of the same plan' \
        "$ranvier" "${plan[@]}" --batch-size 48 --replay "$folder/trace.json"
refused "a trace of another number of ranks is refused" 2 'the trace is of 12 ranks, --gpus is 6' \
        "$ranvier" simulate gpt-12b --gpus 6 --pp 6 --micro-batch-size 1 --batch-size 12 --replay "$folder/trace.json"
refused "a batch that a trace lacks is refused" 2 'has no batch 7; its batches go from 0 to 1' \
        "$ranvier" "${plan[@]}" --replay "$folder/trace.json" --replay-batch 7

for option in "--profile a100-datasheet" "--platform generic" "--platform-xml $folder/x.xml" --fits-only --ignore-memory; do
        # shellcheck disable=SC2086 # an option and its argument
        refused "a replay refuses ${option%% *}, which would change nothing" 2 "${option%% *} has no use with it" \
                "$ranvier" "${plan[@]}" --replay "$folder/trace.json" $option
done

# ---- fused kernels and bf16: a softmax takes 50 ms, fused attention 10 ms and its backward 20 ms; bf16 twice that ----
python3 - "$fixtures" "$folder" <<'END'
import json, sys
profile = json.load(open(sys.argv[1] + "/profile_60_180.json"))
kernels = profile["loads"][0]["kernels"]
def write(name):
    json.dump(profile, open(sys.argv[2] + "/" + name + ".profile", "w"))
def model(seconds):
    return {"model": {"overhead_seconds": seconds}}
plain = [name for name in kernels]
for suffix, times in ("", 1), ("_bf16", 2):
    for name in plain:
        kernels[name + suffix] = model(0)
    kernels["softmax" + suffix] = model(0.05 * times)
for name in "overflow_bf16", "unscale_bf16", "clear_bf16":
    kernels[name] = model(0)
write("unfused")
for suffix, times in ("", 1), ("_bf16", 2):
    for name in "matmul_bias", "matmul_bias_gelu", "matmul_bias_residual", "matmul_gelu_backward":
        kernels[name + suffix] = model(0)
    kernels["attention" + suffix], kernels["attention_backward" + suffix] = model(0.01 * times), model(0.02 * times)
write("fused")
END
four() { # PROFILE [OPTION...]: 4 layers, 3 micro-batches, fp32 unless an option says otherwise
        "$ranvier" simulate "$fixtures/model_4_layers.json" --profile "$folder/$1.profile" --platform generic --gpus 1 \
                --micro-batch-size 2 --batch-size 6 --clip 0 --ignore-memory --precision fp32 \
                --report "$folder/report.json" "${@:2}"
}
four unfused >"$folder/out" && holds "close(batch, 12 * 0.05, 1e-4) and r['plan']['fusion'] == 'off'"
result "without fused kernels in the profile nothing is fused"
four fused >"$folder/out" && holds "close(batch, 12 * 0.03, 1e-4) and r['plan']['fusion'] == 'on'" && grep -q 'fused kernels' "$folder/out"
result "with them everything is, and the report says so"
fused=$(python3 -c "import json; print(json.load(open('$folder/report.json'))['memory']['by_category']['activations'])")
four fused --fusion off >"$folder/out" && holds "close(batch, 12 * 0.05, 1e-4) and r['plan']['fusion'] == 'off'" &&
        holds "memory['by_category']['activations'] > $fused"
result "but not with --fusion off, which stores a (T,T) matrix a head"
four fused --precision bf16 >"$folder/out" && holds "close(batch, 12 * 0.06, 1e-4) and r['plan']['precision'] == 'bf16'"
result "bf16 has prices of its own"
four fused --precision bf16 --fusion off --recompute full >"$folder/out" && holds "close(batch, 12 * 2 * 0.1, 1e-4)"
result "and without fusion too, where a softmax is computed again"
four fused --recompute full --fusion on >"$folder/out" && holds "close(batch, 12 * (0.03 + 0.01), 1e-4)"
result "fused attention is computed again before its backward"
refused "--fusion on needs a profile with fused kernels" 2 'unfused.profile has no fused kernels .* in --precision bf16' \
        four unfused --precision bf16 --fusion on
rm -f "$folder/report.json"

# ---- how far to trust it ----
python3 - "$fixtures" "$folder" <<'END'
import json, sys
profile = json.load(open(sys.argv[1] + "/profile_60_180.json"))
for kernel in profile["loads"][0]["kernels"].values():
    if kernel["model"]:
        kernel["model"]["error"] = 0.02
json.dump(profile, open(sys.argv[2] + "/errors.profile", "w"))
END
job 4 4 16 instant gpipe --profile "$folder/errors.profile" >"$folder/out" && grep -q '^  time per batch .* \[.* s, .* s\] nine times in ten$' "$folder/out" &&
        grep -qE '^error +2\.00 % standard: drift 0\.00 %, kernels 2\.00 %' "$folder/out" &&
        holds "close(r['batch_seconds']['low'], batch * math.exp(-1.64485 * 0.02), 1e-4) and close(r['batch_seconds']['high'], batch * math.exp(1.64485 * 0.02), 1e-4)"
result "errors that the profile states become an interval, in the table and in the report"
job 4 4 16 instant gpipe >"$folder/out" && ! grep -q 'nine times' "$folder/out" &&
        grep -qE '^error +not known, so no interval: profile .* does not say the error of ' "$folder/out" && holds "'low' not in r['batch_seconds']"
result "without them there is no interval, and the table says so"

# ---- two memories: updates of a bucket take 20 ms, and nothing else does ----
python3 - "$fixtures" "$folder" <<'END'
import json, sys
profile = json.load(open(sys.argv[1] + "/profile_60_180.json"))
load = profile["loads"][0]
for name, kernel in list(load["kernels"].items()):
    load["kernels"][name + "_half"] = json.loads(json.dumps(kernel))
for name in "overflow_half", "unscale_half", "clear_half":
    load["kernels"][name] = {"model": {}}
load["kernels"]["adamw_half"]["model"]["overhead_seconds"] = 0.02
json.dump(profile, open(sys.argv[2] + "/half.profile", "w"))
load["lines"] = {name: {"fit": {"latency_seconds": latency, "seconds_per_byte": 0}} for name, latency in
                 (("copy", 0), ("copy_back", 0), ("message", 0), ("allreduce", 0), ("allreduce_half", 0.5),
                  ("fetch", 0.03), ("offloaded_update", 0.04), ("write_back", 0.05))}
load["ranks"] = 2
json.dump(profile, open(sys.argv[2] + "/lines.profile", "w"))
gpu = json.loads(json.dumps(profile))
gpu["device"] = {"name": "A GPU", "driver": "580.1 (CUDA 13.0)", "processors": 132, "clock_hertz": 2e9, "overhead_bytes": 7}
gpu["machine"] = {"date": "2026-11-21T13:00:00Z"}
gpu["loads"][0]["launch"] = {"host_seconds": 0.5, "lane_seconds": 0}
gpu["loads"][0]["graph"] = {"host_seconds": 1e-3, "lane_seconds": 0}
json.dump(gpu, open(sys.argv[2] + "/gpu.profile", "w"))
def copies(name, alone, both):
    seconds = {"copy": alone, "copy_back": alone}
    seconds.update({line + "_both": both for line in seconds if both})
    with_copies = json.loads(json.dumps(profile))
    for line, value in seconds.items():
        with_copies["loads"][0]["lines"][line] = {"fit": {"latency_seconds": value, "seconds_per_byte": 0}}
    json.dump(with_copies, open(sys.argv[2] + "/copies_" + name + ".profile", "w"))
copies("alone", 4, 0)
copies("same", 4, 4)
copies("shared", 4, 8)
copies("slow", 8, 0)
for name in load["lines"]:
    without = json.loads(json.dumps(profile))
    del without["loads"][0]["lines"][name]
    json.dump(without, open(sys.argv[2] + "/no_" + name + ".profile", "w"))
platform = json.load(open(sys.argv[1] + "/platform_instant_links.json"))
platform["host_link"]["value"] = 10
json.dump(platform, open(sys.argv[2] + "/host10.platform", "w"))
platform["host_memory_bandwidth"] = {"value": 4, "unit": "GB/s", "source": "chosen for the test"}
json.dump(platform, open(sys.argv[2] + "/memory4.platform", "w"))
END
offload() { # GPUS PROFILE PLATFORM [OPTION...]: 4 layers on one GPU, buckets of 15 million parameters
        "$ranvier" simulate "$fixtures/model_4_layers.json" --profile "$folder/$2.profile" --platform "$3" --gpus "$1" \
                --micro-batch-size 6 --batch-size 24 --clip 0 --precision mixed --offload --bucket-params 15000000 \
                --report "$folder/report.json" "${@:4}"
}
# n updates of 5 million parameters; the last one is smaller. f: fetch or write back of 60 MB at 10 GB/s
parts="(n := -(-(memory['by_category']['weights'] // 2) // 5000000), f := 60e6 / 10e9, last := f * ((memory['by_category']['weights'] // 2 - 1) % 5000000 + 1) / 5e6)"
offload 1 half "$folder/host10.platform" >"$folder/out" &&
        holds "$parts and close(phases['optimizer_seconds'], f + n * 0.02 + last)"
result "updates that are longer than copies hide all of them but the first and the last"
offload 1 half "$folder/memory4.platform" >"$folder/out" &&
        holds "$parts and (n - 2) * 120e6 / 4e9 <= phases['optimizer_seconds'] <= f + 0.02 + n * 120e6 / 4e9"
result "a slow host memory carries both directions of all copies"
offload 1 lines local >"$folder/out" && holds "$parts and close(phases['optimizer_seconds'], 0.03 + 0.04 + n * 0.05)" &&
        grep -q '^copies .* from datasheet constants' "$folder/out"
result "the local machine takes the measured fetch, update and write back"
offload 2 lines local --dp 2 --allreduce-buckets 1000 >"$folder/out" && holds "close(phases['allreduce_seconds'], 0.5, 1e-3)"
result "and the measured all-reduce of fp16"
! grep -q "^folded" "$folder/out"
result "on one machine nothing is said of folding"
offload 1 lines local --bucket-params 1000000000000 2>&1 | grep -q 'bucket is a part'
result "a bucket larger than the model is refused"
for line in fetch offloaded_update write_back allreduce_half; do
        said=$(offload 2 "no_$line" local --dp 2 2>&1 >"$folder/out")
        [ $? -eq 2 ] && grep -q "has no line \"$line\"" <<<"$said"
        result "a profile without the line $line, which the plan needs, is refused"
done
"$ranvier" simulate "$fixtures/model_4_layers.json" --profile "$folder/no_copy_back.profile" --platform local --gpus 1 \
        --micro-batch-size 6 --batch-size 48 --schedule gpipe --precision mixed --offload-activations 2>&1 >"$folder/out" |
        grep -q 'has no line "copy_back"'
result "and so is one without copies to the host, for offloaded activations"
# Stored activations go over the host link, 10 GB/s; with a link a thousand times slower they are what limits.
activations=(--schedule gpipe --batch-size 48 --offload-activations)
offload 1 half "$folder/host10.platform" --schedule gpipe --batch-size 48 >"$folder/out"
alone=$(python3 -c "import json; print(json.load(open('$folder/report.json'))['phases']['pipeline_seconds'])")
offload 1 half "$folder/host10.platform" "${activations[@]}" --trace "$folder/trace.json" >"$folder/out" &&
        holds "close(phases['pipeline_seconds'], $alone, 0.2)" && grep -q '"store activations' "$folder/trace.json"
result "activations are stored and fetched beside the work"
offload 1 half "$folder/host10.platform" "${activations[@]}" --replay "$folder/trace.json" >"$folder/out" 2>&1
"$ranvier" simulate "$fixtures/model_4_layers.json" --gpus 1 --micro-batch-size 6 --clip 0 --precision mixed --offload \
        --bucket-params 15000000 "${activations[@]}" --replay "$folder/trace.json" >"$folder/out" &&
        grep -q "^decisions: \([0-9]*\) of \1 identical" "$folder/out"
result "a trace of offloaded updates and activations is replayed with the same decisions"
# Copies of four seconds, both ways at once of eight: between all of four and all of eight.
pipeline_of() { # PROFILE
        offload 1 "$1" local --schedule gpipe --batch-size 48 --offload-activations >"$folder/out" &&
                python3 -c "import json; print(json.load(open('$folder/report.json'))['phases']['pipeline_seconds'])"
}
alone=$(pipeline_of copies_alone)
[ "$(pipeline_of copies_same)" = "$alone" ]
result "copies that do not slow each other down take what they take alone"
shared=$(pipeline_of copies_shared)
python3 -c "import sys; sys.exit(not $alone * 1.2 < $shared <= $(pipeline_of copies_slow) * (1 + 1e-9))"
result "copies in both directions at once take what was measured for both at once" || echo "# $alone alone, $shared"
# The host needs half a second a kernel: no operation is faster than its launches.
offload 1 gpu local >"$folder/out" &&
        grep -q '^device     kernel times of A GPU, driver 580.1 (CUDA 13.0), measured 2026-11-21$' "$folder/out"
result "a profile of a GPU is named with its driver and its day"
in_graphs=$(python3 -c "import json; print(json.load(open('$folder/report.json'))['phases']['pipeline_seconds'])")
offload 1 lines local >"$folder/out" && holds "close(phases['pipeline_seconds'], $in_graphs)" &&
        offload 1 gpu local --cuda-graphs off >"$folder/out" &&
        holds "phases['pipeline_seconds'] > 4 * 4 * 10 * 0.5 > 5 * $in_graphs"
result "an operation takes no less than the launches of its kernels, which graphs make cheap"
sed 's/"update of/"clear of/; s/"kind":"update"/"kind":"clear"/' "$folder/trace.json" >"$folder/skipped.json"
said=$("$ranvier" simulate "$fixtures/model_4_layers.json" --gpus 1 --micro-batch-size 6 --clip 0 --precision mixed \
        --offload --bucket-params 15000000 "${activations[@]}" --replay "$folder/skipped.json" 2>&1 >"$folder/out")
[ $? -eq 2 ] && grep -q 'batch 0 was skipped .* choose another with --replay-batch' <<<"$said"
result "a batch whose step was skipped is refused for replay"

# ---- what it refuses ----
rm -f "$folder"/*.json "$folder"/*.profile "$folder"/*.platform
cp "$fixtures/model_4_layers.json" "$folder/model.json"
small=(simulate tiny --gpus 2 --pp 2 --micro-batch-size 1 --batch-size 4)
"$ranvier" "${small[@]}" "${datasheet[@]}" >"$folder/out"
result "the plan of the following errors is sound"
refused "--gpus must be given" 2 '--gpus is missing' "$ranvier" simulate tiny "${datasheet[@]}"
refused "--profile must be given" 2 '--profile is missing' "$ranvier" "${small[@]}" --platform generic
refused "--platform must be given" 2 '--platform is missing' "$ranvier" "${small[@]}" --profile a100-datasheet
refused "a grid that is not the GPUs is refused" 2 '--pp 2 x --dp 1 needs 2 devices, but --gpus is 3$' \
        "$ranvier" "${small[@]}" "${datasheet[@]}" --gpus 3
refused "an unknown platform is answered with the presets" 2 'neither "local", a preset \(.*generic' \
        "$ranvier" "${small[@]}" --profile a100-datasheet --platform nowhere
for option in gpus profile platform; do
        "$ranvier" simulate --help | tr -d '\n' | grep -qE -- "--$option=[A-Z]+ [^=]*\(required[,;)]"
        result "--help says that --$option is required"
done
refused "a JSON file that is no profile is refused as such" 2 'model.json: is not a profile of ranvier calibrate' \
        "$ranvier" "${small[@]}" --profile "$folder/model.json" --platform generic
refused "a JSON file that is no platform is refused as such" 2 'model.json: is not a platform' \
        "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/model.json"
refused "two outputs of one name are refused" 2 '--report and --trace are the same file' \
        "$ranvier" "${small[@]}" "${datasheet[@]}" --report "$folder/one" --trace "$folder/../${folder##*/}/one"
refused "an output that would replace the model is refused" 2 'MODEL and --platform-xml are the same file' \
        "$ranvier" "${small[@]/tiny/$folder/model.json}" "${datasheet[@]}" --platform-xml "$folder/model.json"
refused "an output that would replace the trace to be replayed is refused" 2 '--replay and --report are the same file' \
        "$ranvier" "${small[@]}" --replay "$folder/model.json" --report "$folder/model.json"
refused "an unknown profile is refused" 2 'nothing.json' \
        "$ranvier" "${small[@]}" --profile nothing.json --platform generic
refused "a machine without measured copies is not local" 2 'has no line "copy"' \
        "$ranvier" "${small[@]}" --profile a100-datasheet --platform local
refused "more GPUs than there are are refused" 2 'generic has 512' \
        "$ranvier" simulate tiny --gpus 600 --dp 600 --micro-batch-size 1 --batch-size 600 "${datasheet[@]}"

# ---- capacity ----
large=("$ranvier" simulate gpt-12b --gpus 1 --micro-batch-size 1 --batch-size 1 "${datasheet[@]}")
# too_large SENTENCE PATTERN COMMAND...: exit status 2, nothing predicted, a breakdown, and last the sentence
too_large() {
        local sentence=$1 pattern=$2 said status
        shift 2
        said=$("$@" 2>&1 >"$folder/out")
        status=$?
        [ $status -eq 2 ] && ! [ -s "$folder/out" ] && grep -q '^ *weights ' <<<"$said" &&
                tail -n 1 <<<"$said" | grep -qE -- "$pattern"
        result "$sentence" || echo "# status $status; said: ${said//$'\n'/$'\n'# }"
}
too_large "a plan that does not fit is refused with a breakdown" \
        'needs [0-9.]+ GiB of device memory and has 74.51 GiB' "${large[@]}"
too_large "--device-memory overrides the platform" 'device memory and has 1.00 MiB' \
        "$ranvier" "${small[@]}" "${datasheet[@]}" --device-memory 1MiB
"${large[@]}" 2>&1 | grep -q '^--ignore-memory predicts'
result "the refusal says how it can be predicted all the same"
"${large[@]}" --device-memory 1TiB >"$folder/out" && ! grep -q WARNING "$folder/out"
result "--device-memory may also say that there is more"
"${large[@]}" --ignore-memory >"$folder/out" && grep -q '^WARNING .* does not fit' "$folder/out"
result "and predicted with a warning if it is insisted on"
offloaded=(simulate gpt-12b --gpus 12 --pp 12 --micro-batch-size 1 --batch-size 12 --precision mixed --offload
        --profile v100-datasheet)
too_large "a host memory that is too small is named" 'needs [0-9.]+ GiB of host memory and has 8.00 GiB' \
        "$ranvier" "${offloaded[@]}" --platform summit --host-memory 8GiB
sed 's/"host_memory": {"value": 512,/"host_memory": {"value": 48,/' "$fixtures/../../sim/platforms/summit.json" \
        >"$folder/summit"
too_large "a rank has its share of a node's memory" 'needs [0-9.]+ GiB of host memory and has 7.45 GiB' \
        "$ranvier" "${offloaded[@]}" --platform "$folder/summit"
sed 's/"host_memory": {"value": 512, "unit": "GB"/"host_memory": {"value": 1, "unit": "B"/' \
        "$fixtures/../../sim/platforms/summit.json" >"$folder/summit"
too_large "a node of one byte is too small, not unknown" 'host memory and has 1 B' \
        "$ranvier" "${offloaded[@]}" --platform "$folder/summit"
said=$("$ranvier" simulate gpt-12b --gpus 48 --pp 6 --dp 8 --micro-batch-size 1 --batch-size 48 --precision mixed \
        --profile v100-datasheet --platform summit 2>&1 >"$folder/out")
flags=$(grep -oE '^  --[a-z-]+( [a-z0-9-]+)*' <<<"$said" | head -n 1)
# shellcheck disable=SC2086 # the flags are words
"$ranvier" simulate gpt-12b --gpus 48 --pp 6 --dp 8 --micro-batch-size 1 --batch-size 48 --precision mixed \
        --profile v100-datasheet --platform summit $flags >"$folder/out" && [ -n "$flags" ]
result "the first change that is proposed makes it fit"

# platform SENTENCE PATTERN EDIT: the generic platform with one thing changed by a Python statement
platform() {
        python3 - "$fixtures/../../sim/platforms/generic.json" "$folder/broken" "$3" <<'END'
import json, sys
p = json.load(open(sys.argv[1]))
exec(sys.argv[3])
json.dump(p, open(sys.argv[2], "w"), indent=1)
END
        refused "$1" 2 "$2" "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/broken"
}
platform "a platform without a figure is refused" 'needs "nic": \{"value"' 'del p["nic"]'
platform "a figure of another unit is refused" ':[0-9]+: "nic" has the unit "furlong", must be GB/s' 'p["nic"]["unit"] = "furlong"'
platform "a figure without a source is refused" '"gpu_link" needs a "source"' 'del p["gpu_link"]["source"]'
platform "a negative figure is refused" '"gpu_link" has the value -3, must be a number that is greater than 0' \
        'p["gpu_link"]["value"] = -3'
platform "a figure without a value is refused" '"gpu_link" needs a "value"' 'del p["gpu_link"]["value"]'
platform "a figure without a unit is refused" '"host_memory" needs a "unit": B, GB or GiB' 'del p["host_memory"]["unit"]'
platform "a memory beyond all counting is refused" '"host_memory" is 1e.300 GB, must be at most 2.60 bytes' \
        'p["host_memory"]["value"] = 1e300'
platform "sockets that do not divide the GPUs are refused" '"sockets" is 3, must divide the 8 GPUs of a node' \
        'p["sockets"]["value"] = 3'
platform "half a GPU is refused" '"gpus_per_node" is 7.5' 'p["gpus_per_node"]["value"] = 7.5'
source='"source": "test"'
platform "more sockets than GPUs are refused" '"sockets" is 9, must divide the 8 GPUs of a node' 'p["sockets"]["value"] = 9'
platform "a socket link without its latency is refused" '"socket_link" needs "socket_link_latency" beside it' \
        "p['socket_link'] = {'value': 64, 'unit': 'GB/s', $source}"
platform "a latency of no socket link is refused" '"socket_link_latency" needs "socket_link" beside it' \
        "p['socket_link_latency'] = {'value': 1, 'unit': 'us', $source}"
platform "a socket link of one socket is refused" '"socket_link" joins sockets, but "sockets" is 1' \
        "p['sockets']['value'] = 1; p['socket_link'] = {'value': 64, 'unit': 'GB/s', $source}; p['socket_link_latency'] = {'value': 1, 'unit': 'us', $source}"
platform "a host memory that carries nothing is refused" '"host_memory_bandwidth" has the value 0, must' \
        'p["host_memory_bandwidth"]["value"] = 0'
platform "a host memory in another unit is refused" '"host_memory" has the unit "GB/s", must be B, GB or GiB' \
        'p["host_memory"]["unit"] = "GB/s"'
platform "a host memory without a source is refused" '"host_memory" needs a "source"' 'del p["host_memory"]["source"]'
head -c 200 "$fixtures/../../sim/platforms/generic.json" >"$folder/broken"
refused "a platform cut short is refused" 2 'broken:[0-9]+: not valid JSON: .* \(is the file cut short\?\)$' \
        "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/broken"
sed 's/<zone id="cluster"/<zne id="cluster"/' "$folder/platform.xml" >"$folder/broken.xml"
refused "a SimGrid file that SimGrid refuses is answered with its words" 2 'SimGrid refuses this platform: Parse error' \
        "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/broken.xml"
link() { # SENTENCE PATTERN MEMBER VALUE: of one link of the SimGrid file
        sed "s/\(<link id=\"in-0-1\".*$3=\"\)[^\"]*/\1$4/" "$folder/platform.xml" >"$folder/link.xml"
        refused "$1" 2 "link.xml: link in-0-1 has a $2" \
                "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/link.xml"
}
link "a SimGrid file with a link that carries nothing is refused" 'bandwidth of 0 B/s, more than 0 and at most' bandwidth 0Bps
link "or less than nothing" 'bandwidth of -5 B/s, more than 0' bandwidth -5Bps
link "or no number" 'bandwidth of -?nan B/s, more than 0' bandwidth nanBps
link "or infinitely much" 'bandwidth of inf B/s, more than 0' bandwidth infBps
link "one with a latency that is negative is refused" 'latency of -1 s, 0 to 3600 s was expected$' latency -1s
link "or no number" 'latency of -?nan s, 0 to 3600 s was expected$' latency nans
link "or without an end" 'latency of 1e\+300 s, 0 to 3600 s was expected$' latency 1e300s
echo "<?xml version='1.0'?><!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\"><platform version=\"4.1\"><cluster id=\"c\"
        prefix=\"n-\" suffix=\"\" radical=\"0-3000000\" speed=\"1f\" bw=\"1GBps\" lat=\"1us\"/></platform>" >"$folder/hosts.xml"
refused "one that takes too long to load is refused" 2 'hosts.xml: SimGrid did not load .* limit of processor time' \
        bash -c 'ulimit -S -t 1; "$@"' limited "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/hosts.xml"
refused "if the process that tries it is killed, that is said" 1 'hosts.xml: the process .* was ended by signal 9 \(Killed\)$' \
        bash -c 'ulimit -t 1; "$@"' limited "$ranvier" "${small[@]}" --profile a100-datasheet --platform "$folder/hosts.xml"
refused "a folder for temporary files that is not there is named" 1 "no temporary file in $folder/missing: No such file" \
        env TMPDIR="$folder/missing" "$ranvier" "${small[@]}" "${datasheet[@]}"
# Four hosts in a ring: neighbours in the pipelines are linked, the replicas' members opposite each other are not.
python3 - "$folder/ring.xml" "$folder/large.xml" <<'END'
import sys
for path, hosts in ((sys.argv[1], 4), (sys.argv[2], 128)):
    around = [(i, (i + 1) % hosts) for i in range(hosts)]
    lines = ["<?xml version='1.0'?>", '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1"><zone id="ring" routing="Full">']
    lines += ['<host id="gpu-%d" speed="1Gf"/>' % i for i in range(hosts)]
    lines += ['<link id="link-%d" bandwidth="10GBps" latency="2us"/>' % a for a, b in around]
    lines += ['<route src="gpu-%d" dst="gpu-%d"><link_ctn id="link-%d"/></route>' % (a, b, a) for a, b in around]
    open(path, "w").write("\n".join(lines + ["</zone></platform>"]))
END
refused "a SimGrid file without the route of an all-reduce is refused" 2 'ring.xml: .*no route from gpu-0 to gpu-2$' \
        "$ranvier" simulate tiny --profile a100-datasheet --platform "$folder/ring.xml" --gpus 4 --pp 2 --dp 2 \
        --micro-batch-size 1 --batch-size 4
refused "and so is one of more ranks" 2 'large.xml: .*no route from gpu-0 to gpu-2$' \
        "$ranvier" simulate tiny --profile a100-datasheet --platform "$folder/large.xml" --gpus 128 --pp 2 --dp 64 \
        --micro-batch-size 1 --batch-size 64
python3 - "$fixtures/profile_60_180.json" "$folder/nothing" <<'END'
import json, sys
profile = json.load(open(sys.argv[1]))
for kernel in profile["loads"][0]["kernels"].values():
    kernel["model"] = {}
json.dump(profile, open(sys.argv[2], "w"))
END
refused "a profile in which nothing takes time is refused" 2 'prices every kernel of this plan at 0 s' \
        "$ranvier" "${small[@]}" --profile "$folder/nothing" --platform generic
said=$("$ranvier" "${small[@]}" "${datasheet[@]}" 2>&1 >/dev/full)
status=$?
said=$(sed '/^==.*ASan is ignoring/,/^For details/d' <<<"$said") # what AddressSanitizer says of SimGrid's stacks (sim/world/network.c)
[ $status -eq 1 ] && [ "$said" = "ranvier simulate: standard output could not be written: No space left on device" ]
result "a prediction that cannot be printed is a failure"
"$ranvier" "${small[@]}" "${datasheet[@]}" <&- >&- 2>&-
[ $? -eq 1 ]
result "so is one to a closed output, whose number no other file takes"
if [[ $RANVIER_BIN == */san/bin ]]; then # whose shadow of memory needs more
        true
else
        (ulimit -v 60000; "$ranvier" simulate gpt-100b --gpus 384 --pp 48 --dp 8 --batch-size 1536 --micro-batch-size 1 --precision mixed --offload \
                --recompute full --profile v100-datasheet --platform summit --fold off >"$folder/out" 2>&1)
        [ $? -eq 1 ] && tail -n 1 "$folder/out" | grep -q "^ranvier: ended without a result"
fi
result "no memory is a sentence, and a status"
refused "a report that cannot be written is known before the work" 2 'cannot be written' \
        "$ranvier" "${small[@]}" "${datasheet[@]}" --report "$folder/missing/report.json"
refused "one output that cannot be written keeps the other from being written" 2 'cannot be written' \
        "$ranvier" "${small[@]}" "${datasheet[@]}" --report "$folder/report.json" --trace "$folder/missing/trace.json"

# ---- what is said once, and what is not ----

"$ranvier" "${small[@]}" "${datasheet[@]}" >"$folder/out"
[ "$(grep -ci "^profile .*not measured" "$folder/out")" -eq 1 ] && ! grep -qi "not measured.*not measured" "$folder/out"
result "a profile that says itself that it was not measured is not told to be so twice"
sed 's/"source": "datasheet: not measured;/"source": "made up:/' "$fixtures/../../calibrate/profiles/a100-datasheet.json" >"$folder/p"
"$ranvier" "${small[@]}" --profile "$folder/p" --platform generic | grep -q "^profile .*: NOT measured; made up:"
result "one that does not say it is told to be so"
! "$ranvier" "${small[@]}" "${datasheet[@]}" | grep -q "  training "
result "a small model is not given the days of a training of 300 billion tokens"
"$ranvier" "${small[@]}" "${datasheet[@]}" --tokens 2B | grep -q "  training .* days   for 2 billion tokens"
result "but those of the tokens that are asked for"
"$ranvier" "${small[@]}" "${datasheet[@]}" --pp 1 --dp 2 | grep -q "^folded  "
result "on a cluster it is said why replicas are not folded"
rm "$folder/p"
rm "$folder/model.json"
[ -z "$(find "$folder" -name '*.json*')" ]
result "no refusal leaves a file behind"
