#!/bin/bash
# Platforms: what the presets say, fabrics, nodes of several kinds, and what is refused.
set -u
ranvier=$RANVIER_BIN/ranvier
here=$(cd "$(dirname "$0")/.." && pwd)
fixtures=$here/fixtures
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/tap.sh"
presets=$(cd "$(dirname "$0")/../../sim/platforms" && for file in *.json; do echo "${file%.json}"; done)
echo 1..$((22 + $(wc -w <<<"$presets")))

# A platform made of the preset $1 by the Python in $2 on the document p, into $folder/$3.json.
make_platform() {
        python3 - "$here/../sim/platforms/$1.json" "$folder/$3.json" "$2" <<'END'
import json, sys
p = json.load(open(sys.argv[1]))
def figure(value, unit):
    return {"value": value, "unit": unit, "source": "made for a test"}
exec(sys.argv[3])
json.dump(p, open(sys.argv[2], "w"), indent=1)
END
}

# A profile of device $1 whose layers take $2 times as long, into $folder/$3.json.
make_profile() {
        python3 - "$fixtures/profile_60_180.json" "$folder/$3.json" "$1" "$2" <<'END'
import json, sys
p = json.load(open(sys.argv[1]))
p["device"] = sys.argv[3]
for kernel in p["loads"][0]["kernels"].values():
    if "overhead_seconds" in kernel["model"]:
        kernel["model"]["overhead_seconds"] *= float(sys.argv[4])
json.dump(p, open(sys.argv[2], "w"))
END
}

# Batch seconds of a plan of 24 layers and one micro-batch on two GPUs.
batch() { # PLATFORM PROFILES [OPTION...]
        "$ranvier" simulate "$fixtures/model_24_layers.json" --platform "$1" --profile "$2" --gpus 2 --pp 2 \
                --micro-batch-size 1 --batch-size 1 --clip 0 --schedule 1f1b --ignore-memory \
                --report "$folder/report.json" "${@:3}" >"$folder/out" 2>&1 &&
                python3 -c "import json; print(json.load(open('$folder/report.json'))['batch_seconds']['median'])"
}

near() { # FOUND EXPECTED
        python3 -c "import sys; sys.exit(not abs(${1:-0} / ($2) - 1) < 2e-3)"
}

refused() { # SENTENCE PATTERN COMMAND...
        local sentence=$1 pattern=$2 said found
        shift 2
        said=$("$@" 2>&1 >/dev/null)
        found=$?
        [ $found -eq 2 ] && grep -qE -- "$pattern" <<<"$said" && [ "$(wc -l <<<"$said")" -eq 1 ]
        result "$sentence" || echo "# status $found; said: ${said//$'\n'/$'\n'# }"
}

# ---- units ----

make_platform generic 'p["nic"].update(value=p["nic"]["value"] * 8, unit="Gbit/s")' bits
for platform in generic "$folder/bits.json"; do
        "$ranvier" simulate tiny --gpus 2 --pp 2 --micro-batch-size 1 --batch-size 2 --profile a100-datasheet \
                --platform "$platform" --platform-xml "$folder/$(basename "$platform").xml" >"$folder/out" 2>&1 ||
                cat "$folder/out"
done
cmp "$folder/generic.xml" "$folder/bits.json.xml"
result "a network in Gbit/s is the same platform as in eighths of it in GB/s"

# ---- presets ----

plan=("$ranvier" simulate "$fixtures/model_24_layers.json" --pp 4 --dp 4 --gpus 16 --batch-size 8
        --micro-batch-size 1 --ignore-memory)
# The GPU of a preset, or of the one that it is like.
device_of() {
        local file=$here/../sim/platforms/$1.json device like
        device=$(sed -n 's/.*"gpu": "\([^"]*\)".*/\1/p' "$file")
        like=$(sed -n 's/.*"like": "\([^"]*\)".*/\1/p' "$file")
        if [ -z "$device" ] && [ -n "$like" ]; then device_of "$like"; else echo "$device"; fi
}
for preset in $presets; do
        device=$(device_of "$preset")
        make_profile "${device:-any}" 1 "$preset"
        "${plan[@]}" --profile "$folder/$preset.json" --platform $preset \
                --platform-xml "$folder/$preset.xml" >"$folder/out" 2>&1 &&
                [ "$(grep -c '<host id="gpu-' "$folder/$preset.xml")" -eq 16 ]
        result "a plan runs on $preset, whose XML has its GPUs" || sed 's/^/# /' "$folder/out"
done

# ---- fabrics ----

make_profile "A100" 1 a100
torus='p["nodes"] = figure(64, "count"); p["fabric"] = {"kind": "torus", "shape": [4, 4, 4], "link": figure(25, "GB/s")}'
make_platform selene "$torus" torus
"${plan[@]}" --profile "$folder/a100.json" --platform "$folder/torus.json" >"$folder/out" 2>&1
result "a plan runs on a torus" || sed 's/^/# /' "$folder/out"
dragonfly='p["nodes"] = figure(64, "count"); p["fabric"] = {"kind": "dragonfly", "groups": figure(4, "count"),
 "routers": figure(4, "count"), "router_nodes": figure(4, "count"), "link": figure(25, "GB/s"), "global_link": figure(10, "GB/s")}'
make_platform selene "$dragonfly" dragonfly
"${plan[@]}" --profile "$folder/a100.json" --platform "$folder/dragonfly.json" >"$folder/out" 2>&1
result "a plan runs on a dragonfly" || sed 's/^/# /' "$folder/out"

# ---- several kinds of nodes ----

kinds='del p["nodes"], p["gpu"], p["fabric"]; p["gpus_per_node"] = p["rails"] = p["sockets"] = figure(1, "count")
p["groups"] = [{"source": "a test", "gpu": g, "nodes": {"value": 1, "unit": "count"}} for g in ("A100-SXM4-80GB", "V100-SXM2-16GB")]'
make_platform selene "$kinds" kinds
make_profile "A100-SXM4-80GB" 1 fast
make_profile "V100" 2 slow
same=$(batch "$folder/kinds.json" "$folder/fast.json,$folder/slow.json")
near "$same" "12 * 0.24 + 12 * 0.48"
result "each rank takes what the profile of its GPU says" || sed 's/^/# /' "$folder/out"
grep -q "slow.json for the V100-SXM2-16GB" "$folder/out"
result "and it is said which profile is whose"
other=$(batch "$folder/kinds.json" "$folder/slow.json,$folder/fast.json")
[ -n "$same" ] && [ "$same" = "$other" ]
result "in whatever order the profiles are named"
near "$(batch "$folder/kinds.json" "$folder/fast.json" --gpus 1 --pp 1)" "24 * 0.24"
result "GPUs that have no rank need no profile" || sed 's/^/# /' "$folder/out"
make_profile "NVIDIA A100-SXM4-40GB" 1 family
near "$(batch selene "$folder/family.json")" "24 * 0.24"
result "a profile of another GPU of the family will do" || sed 's/^/# /' "$folder/out"

# ---- refused ----

two=("$ranvier" simulate "$fixtures/model_24_layers.json" --gpus 2 --pp 2 --micro-batch-size 1 --batch-size 2)
refused "a profile without the GPU is refused" \
        'platform summit has V100-SXM2-16GB, but --profile is of A100-SXM4-80GB; name a profile of that GPU' \
        "${two[@]}" --platform summit --profile "$folder/fast.json"
refused "a profile without the GPU of one kind of nodes is refused" \
        'platform selene has V100-SXM2-16GB, but --profile is of A100-SXM4-80GB; name a profile of that GPU' \
        "${two[@]}" --platform "$folder/kinds.json" --profile "$folder/fast.json"
refused "two profiles for GPUs that have no name are refused" \
        '2 profiles, but platform generic does not say which GPUs it has' \
        "${two[@]}" --platform generic --profile "$folder/fast.json,$folder/slow.json"
broken() { # SENTENCE PATTERN PYTHON [OPTION...]
        make_platform selene "$3" broken
        refused "$1" "$2" "${two[@]}" --platform "$folder/broken.json" --profile "$folder/fast.json" "${@:4}"
}
broken "a fabric that does not exist is refused" \
        'broken.json:[0-9]+: "kind" is "hypercube", must be one of: switch, fat-tree, dragonfly, torus' \
        'p["fabric"] = {"kind": "hypercube"}'
broken "a torus without its link is refused" 'broken.json:[0-9]+: "fabric" needs "link": \{"value": a number, "unit": GB/s' \
        "$torus; del p['fabric']['link']"
broken "a link that carries nothing is refused" '"link" has the value 0, must be a number that is greater than 0' \
        "$torus; p['fabric']['link']['value'] = 0"
broken "a torus of too few nodes is refused" '"fabric" joins 64 nodes, but the platform has 65' \
        "$torus; p['nodes']['value'] = 65"
broken "a level without its oversubscription is refused" '"oversubscription" has 1 numbers, must have one for each of the 2' \
        'p["fabric"]["oversubscription"] = [1]'
broken "a misspelt member is refused" 'broken.json:[0-9]+: a platform has no member "rial"; the nearest is "rails"' \
        'p["rial"] = p.pop("rails")'
broken "a library of collectives that does not exist is refused" '"library" is "mpich", must be one of: plain, nccl' \
        'p["collectives"]["library"] = "mpich"'
broken "nodes of which the GPU is not said are refused" 'each of "groups" needs "gpu", as profiles name it' \
        'del p["gpu"]; p["groups"] = [{"nodes": figure(1, "count")}]'
broken "an adapter that carries nothing is refused" '"nic" has the value 0, must be a number that is greater than 0' \
        'p["nic"]["value"] = 0'
broken "a plan of more GPUs than all kinds of nodes have is refused" '--gpus 4: platform selene has 2 \(2 nodes of several kinds\)' \
        "$kinds" --gpus 4 --pp 4

# ---- shards ----

# Seconds of the pipelines of $1 replicas of four shards, on nodes of six GPUs.
shards() {
        "$ranvier" simulate gpt2-124m --platform summit --profile v100-datasheet --precision mixed --tp 4 --dp "$1" \
                --gpus $((4 * $1)) --micro-batch-size 2 --batch-size $((8 * $1)) --report "$folder/report.json" >"$folder/out" 2>&1 &&
                python3 -c "import json; print(json.load(open('$folder/report.json'))['phases']['pipeline_seconds'])"
}
python3 -c "import sys; sys.exit(not $(shards 3) > 1.3 * $(shards 1) > 0)"
result "Shards that lie in two nodes reach each other over the network"
