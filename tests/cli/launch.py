#!/usr/bin/python3
"""Plans in and out of other tools (--from, --launch): what is written reads back as the plan that it was, for every published
run whose layout is stated; scripts of bash are read as bash itself would start them; the parsers of the tools themselves take
what is written; and what --from makes of files of each kind.

The runs are those of sim/tables, and with RANVIER_TABLES=FOLDER those of FOLDER/runs.csv too, in the words of the glossary.
RANVIER_TABLES_ALL=1 tries every tool on every run and says how many went there and back, and why others did not."""
import collections
import concurrent.futures
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLES, ALL = os.environ.get("RANVIER_TABLES"), os.environ.get("RANVIER_TABLES_ALL")
TOOLS = ("megatron", "torchtitan", "deepspeed", "ranvier")
OF_MEGATRON = ("nemo", "nemo-24.03", "megatron", "mlperf", "flagperf", "simumax", "megatron-2021")
LIMIT_SECONDS = 1800
TOO_LONG = "too many ranks to simulate here"
H100 = ["--machine", "8xh100", "--ignore-memory"]
# Of a prediction alone, or how this program's own operations are cut.
OURS = ("like", "without", "fusion", "bucket_params", "allreduce_buckets", "logits", "messages", "allreduce")


def effective(plan):
    """The plan of a report with what makes no difference left out, and defaults in their own words."""
    p = {key: value for key, value in plan.items() if key not in OURS}
    replicas = p["dp"] * p.get("cp", 1)
    wide = p["precision"] in ("bf16", "fp8", "nvfp4")
    if p["pp"] == 1:
        for key in ("schedule", "p2p", "split", "virtual_stages", "pipeline_limit"):
            p.pop(key, None)
    if p["pp"] == 1 or replicas == 1:
        p.pop("order", None)
    if replicas == 1:
        p["zero"] = 0
    gradients = p.pop("gradients", "auto")
    reduced = p.pop("reduce_dtype", "auto")
    if p["precision"] != "fp32":
        if p["zero"] < 2:
            p["gradients"] = gradients if gradients != "auto" else "fp32" if wide else "16-bit"
        else:
            p["reduce_dtype"] = reduced if reduced != "auto" else "fp32" if wide else "16-bit"
    if p["zero"] >= 2 or replicas == 1:
        p.pop("overlap_allreduce", None)
    if p.get("shard_replicas", replicas) == replicas or p["zero"] == 0:
        p.pop("shard_replicas", None)
    if p.get("ep", 1) == 1:
        for key in ("etp", "dispatcher", "expert_capacity"):
            p.pop(key, None)
    if p["tp"] == 1 or p.get("etp") == p["tp"]:
        p.pop("etp", None)
    if p.get("cp", 1) == 1:
        p.pop("cp_exchange", None)
    if p["recompute"] == "selective":  # with fused attention, which stores no scores
        p["recompute"] = "none"
    return p


def report_of(folder, arguments, **variables):
    """The report of `ranvier simulate ARGUMENTS`, or its last line of stderr."""
    path = os.path.join(folder, "report.json")
    if os.path.exists(path):
        os.remove(path)
    try:
        status, out, err = ranvier.run(["simulate", *arguments, "--report", path], folder=folder, timeout=LIMIT_SECONDS, **variables)
    except subprocess.TimeoutExpired:
        return None, TOO_LONG
    if status:
        return None, (err.strip().splitlines() or ["?"])[-1]
    with open(path) as file:
        return json.load(file), out + err


# ---- published runs ----


def fits(pattern, text):
    """The glossary's rule: # a whole number, * anything, and letters, digits and points alone are compared."""
    plain = lambda word: re.sub(r"[^a-z0-9.#*]", "", word.lower())
    wanted = re.escape(plain(pattern)).replace(r"\*", ".*").replace(r"\#", "([0-9]+)").replace("#", "([0-9]+)")
    return re.fullmatch(wanted, re.sub(r"[#*]", "", plain(text)))


def look_up(glossary, kind, text, row):
    for entry in glossary[kind]:
        for name in entry["names"]:
            found = fits(name, text)
            if found and all(fits(entry[key], row[key]) for key in ("notes", "precision") if key in entry):
                return None if "reason" in entry else (entry, found.groups()[0] if found.groups() else "")
    return None


def model_of(entry, row, path):
    """The preset, or a file of it with the layers, heads and positions that the row has."""
    with open(os.path.join(TREE, "models", "presets", entry["preset"] + ".json")) as file:
        model = json.load(file)
    cut = re.search("cut to ([0-9]+)", row["model"] + " " + row["notes"], re.I)
    length = int(re.match("[0-9]+", row["seq_len"])[0])
    changes = {"num_hidden_layers": int(cut[1])} if cut else {}
    if "kv_heads" in entry:
        changes["num_key_value_heads"] = entry["kv_heads"]
    if "dense_layers" in entry:
        changes["first_k_dense_replace"] = entry["dense_layers"]
    if length > model.get("max_position_embeddings", length):
        changes["max_position_embeddings"] = length
    if not changes:
        return entry["preset"]
    with open(path, "w") as file:
        json.dump({**model, **changes, "name": os.path.basename(path)}, file)
    return path


def glossary_run(glossary, row, path):
    """The command line of a row in the words of others; None if it cannot be expressed."""
    if not all(row[key] for key in ("tp", "pp", "dp", "gpus", "micro_batch", "global_batch", "seq_len")):
        return None
    parts = [look_up(glossary, kind, row[column], row) for kind, column in
             (("models", "model"), ("gpus", "gpu"), ("frameworks", "source"), ("zero", "zero"), ("recompute", "recompute"), ("precision", "precision"))]
    if None in parts:
        return None
    model, gpu, framework, *rest = [part[0] for part in parts]
    number = lambda key: re.match(r"[0-9]*", row[key])[0] or "1"
    plan = framework.get("plan", "") + " " + " ".join(entry.get("plan", "").replace("#", value) for entry, value in parts[3:])
    if int(number("tp")) > 1:
        plan += " " + framework.get("plan_tp", "")
    if int(number("ep")) > 1:
        plan += " " + glossary["experts"]["plan"].replace("#", number("ep"))
        if int(number("tp")) > 1:
            plan += " " + glossary["experts"]["plan_tp"]
    if int(number("cp")) > 1:
        plan += " --cp " + number("cp")
    if int(number("vp")) > 1:
        plan += " --schedule interleaved --virtual-stages " + number("vp")
    return [model_of(model, row, path), "--profile", gpu["profile"], "--platform", gpu["platform"], "--like", framework["like"], "--gpus", number("gpus"),
            "--tp", number("tp"), "--pp", number("pp"), "--dp", number("dp"), "--micro-batch-size", number("micro_batch"), "--batch-size",
            number("global_batch"), "--seq-len", number("seq_len"), *plan.split(), "--ignore-memory"]


def sharded_run(row):
    sequence = ["--sequence-parallel"] if "+sequence" in row["recompute"] else []
    groups = ["--shard-replicas", row["shard_replicas"]] if row["shard_replicas"] else []
    chunks = ["--virtual-stages", row["interleave"]] if row["interleave"] else []
    return [row["preset"], "--profile", row["profile"], "--platform", row["platform"], "--like", row["like"], "--gpus", row["gpus"], "--dp", row["dp"],
            "--cp", row["cp"], "--tp", row["tp"], "--pp", row["pp"], "--zero", row["zero"], "--batch-size", row["batch"], "--micro-batch-size",
            row["micro_batch"], "--seq-len", row["seq"], "--precision", row["precision"], "--recompute",
            row["recompute"].replace("+sequence", "").replace("full", "layer"), "--schedule", row["schedule"], *sequence, *groups, *chunks,
            *row["plan"].split(), "--ignore-memory"]


def read_rows(path):
    with open(path) as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def published_runs(folder):
    runs = [sharded_run(row) for row in read_rows(os.path.join(TREE, "sim", "tables", "sharded.csv"))]
    stated = [f"sharded.csv:{i}" for i in range(len(runs))]
    if TABLES:
        with open(os.path.join(TREE, "sim", "tables", "glossary.json")) as file:
            glossary = json.load(file)
        for line, row in enumerate(read_rows(os.path.join(TABLES, "runs.csv")), 2):
            run = glossary_run(glossary, row, os.path.join(folder, f"line-{line}.json"))
            if run and int(run[run.index("--gpus") + 1]) <= 1024:
                runs.append(run)
                stated.append(f"runs.csv:{line}")
    return list(zip(stated, runs))


def there_and_back(run, tool):
    """Writes a run for a tool, and reads it back: (whether it could be written, what differs)."""
    machine = run[run.index("--profile"):run.index("--profile") + 4]
    with tempfile.TemporaryDirectory() as folder:
        first, said = report_of(folder, [*run, "--launch", f"{tool}=plan.{tool}"])
        if not first:
            return False, said
        like = first["plan"].get("like")
        more = []
        if tool == "deepspeed":
            left = re.search(r"^launch +DeepSpeed: .*; the training script says (.*)$", said, re.M)
            more = [run[0], *(left[1].split() if left else [])]
        back, said = report_of(folder, ["--from", f"plan.{tool}", *machine, "--gpus", run[run.index("--gpus") + 1], "--ignore-memory", *more,
                                        *(["--like", like] if like else [])])
    if not back:
        return True, said
    one, other = effective(first["plan"]), effective(back["plan"])
    if tool == "deepspeed":  # which has one way of messages
        one, other = ({key: value for key, value in p.items() if key not in ("p2p", "order")} for p in (one, other))
    differ = {key: (one.get(key), other.get(key)) for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    sizes = lambda model: {key: value for key, value in model.items() if key not in ("name", "max_position_embeddings", "rope_scaling", "model_type",
                                                                                     "sliding_window")}
    if sizes(first["model"]) != sizes(back["model"]):
        differ["model"] = (first["model"]["name"], back["model"]["name"])
    return True, differ


def native_tool(run):
    like = run[run.index("--like") + 1]
    return "megatron" if like in OF_MEGATRON else "torchtitan" if like.startswith("torchtitan") else "ranvier"


def check_tables(tap, folder):
    runs = published_runs(folder)
    pairs = [(name, run, tool) for name, run in runs for tool in (TOOLS if ALL else {native_tool(run), "ranvier"})]
    if not ALL:
        pairs = pairs[::3] if not ranvier.SANITIZED else pairs[::12]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda pair: there_and_back(pair[1], pair[2]), pairs))
    for tool in TOOLS:
        of_tool = [(name, result) for (name, _, one), result in zip(pairs, results) if one == tool]
        written = [(name, differs) for name, (was, differs) in of_tool if was]
        wrong = [(name, differs) for name, differs in written if differs]
        if of_tool:
            tap.ok(written and not wrong, f"{tool}: what is written of published runs reads back as the same plan", wrong)
        if ALL:
            print(f"# {tool}: {len(written) - len(wrong)} of {len(of_tool)} there and back")
            reasons = collections.Counter(re.sub(r"[0-9.]+", "#", differs)[:110] for _, (was, differs) in of_tool if not was)
            for reason, count in reasons.most_common():
                print(f"#   {count} x {reason}")


# ---- scripts of bash, as bash starts them ----

SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=4
# A run with its sizes in variables, arrays, branches and a function's body.
export CUDA_DEVICE_MAX_CONNECTIONS=1
SIZE=${1:-small}
GPUS_PER_NODE=8
NNODES=${NNODES:-$((1 + 1))}
TP=2; PP=2
LAYERS=$(( (TP + 2) * PP * 4 ))   # 32
case $SIZE in
    tiny | debug) HIDDEN=64 ;;
    small)
        HIDDEN=4096
        HEADS=32 ;;
    *) HIDDEN=8192 ;;
esac
COMMON="--micro-batch-size 1 \
        --global-batch-size 64"
MODEL_ARGS=(
    --num-layers $LAYERS --hidden-size $HIDDEN   # a comment
    --num-attention-heads ${HEADS}
    --ffn-hidden-size 14336 "--seq-length 4096"
    --max-position-embeddings 8192
    --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
    --untie-embeddings-and-output-weights
    --vocab-size 128256
)
PARALLEL=( --tensor-model-parallel-size=$TP --pipeline-model-parallel-size ${PP} )
if [ "$TP" -gt 1 ]; then
    PARALLEL+=(--sequence-parallel)
else
    PARALLEL+=(--tensor-model-parallel-size 7)
fi
[[ $PP == 2 && -n "$TP" ]] && EXTRA="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
[ -z "$UNSET_ANYWHERE" ] || PARALLEL+=(--tensor-model-parallel-size 9)
for word in 'not' "this one"; do echo "--tensor-model-parallel-size 5 $word" > /dev/null 2>&1; done
cat <<EOF > /dev/null
--tensor-model-parallel-size 6
EOF
EMPTY=
NONE=()
torchrun --nproc_per_node "$GPUS_PER_NODE" --nnodes $NNODES --master_port 6000 \
    pretrain_gpt.py \
    ${MODEL_ARGS[@]} "${PARALLEL[@]}" $COMMON ${EXTRA} $EMPTY "${NONE[@]}" \
    --bf16 --use-distributed-optimizer --split '99,1,0' --lr 1e-4 --data-path "${DATA:-some_where}" 2>&1 | tee log
"""


def check_bash(tap, folder):
    """The arguments that bash gives torchrun are the same plan as the script."""
    with open(os.path.join(folder, "run.sh"), "w") as file:
        file.write(SCRIPT)
    with open(os.path.join(folder, "bash.sh"), "w") as file:  # torchrun is a function that writes what it is given
        file.write('torchrun() { echo torchrun "$@" > started.sh; }\n' + SCRIPT)
    subprocess.run(["bash", "bash.sh"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    machine = ["--machine", "h100", "--ignore-memory"]
    ours, said = report_of(folder, ["--from", "run.sh", *machine])
    bash, said_bash = report_of(folder, ["--from", "started.sh", *machine])
    tap.ok(ours and bash and ours["plan"] == bash["plan"] and {**ours["model"], "name": ""} == {**bash["model"], "name": ""},
           "a script is the plan that bash starts", f"{said}\n{said_bash}\n{ours and ours['plan']}\n{bash and bash['plan']}")
    plan = ours["plan"] if ours else {}
    wanted = {"tp": 2, "pp": 2, "dp": 4, "batch_size": 64, "seq_len": 4096, "recompute": "layer", "zero": 1, "precision": "bf16",
              "sequence_parallel": True, "p2p": "blocking", "schedule": "1f1b", "order": "replicas"}
    tap.ok(ours and {key: plan.get(key) for key in wanted} == wanted and ours["model"]["name"] == "llama3-8b",
           "variables, arrays, branches, sums and defaults are what bash makes of them", f"{plan}{ours and ours['model']}")


# ---- each kind of file ----

TITAN = """# a job
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8_192 # tokens
[parallelism]
tensor_parallel_degree = 2
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = 'full'
[optimizer]
lr = 3e-4
"""
DEEPSPEED = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, "overlap_comm": True,
             "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": "auto"}, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
             "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}
ACCELERATE = """distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
num_machines: 2
fsdp_config:
  fsdp_sharding_strategy: HYBRID_SHARD
  fsdp_activation_checkpointing: true
"""


def check_kinds(tap, folder):
    def write(name, text):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        return name

    def plan_of(name, text, *more):
        report, said = report_of(folder, ["--from", write(name, text), *more, "--ignore-memory"])
        return (report["plan"], report) if report else ({}, said)

    plan, said = plan_of("job.toml", TITAN, "--machine", "h100", "--gpus", "16")
    wanted = {"tp": 2, "dp": 8, "zero": 3, "micro_batch_size": 2, "batch_size": 16, "recompute": "layer", "sequence_parallel": True,
              "like": "torchtitan", "seq_len": 8192}
    tap.ok({key: plan.get(key) for key in wanted} == wanted, "a job of torchtitan: FSDP of all ranks that are left", said)
    plan, said = plan_of("ds.json", DEEPSPEED, "llama3-8b", *H100, "--seq-len", "4096")
    wanted = {"dp": 8, "zero": 3, "offload": True, "batch_size": 64, "micro_batch_size": 2, "clip": 1.0, "precision": "bf16"}
    tap.ok({key: plan.get(key) for key in wanted} == wanted, "a configuration of DeepSpeed, with the model on the command line", said)
    os.mkdir(os.path.join(folder, "beside"))
    shutil.copy(os.path.join(TREE, "models", "presets", "llama3.2-1b.json"), os.path.join(folder, "beside", "config.json"))
    plan, said = plan_of("beside/ds.json", DEEPSPEED, *H100, "--seq-len", "4096")
    tap.ok(plan and said["model"]["num_hidden_layers"] == 16, "or beside it", said)
    plan, said = plan_of("fsdp.yaml", ACCELERATE, "llama3-8b", "--machine", "h100", "--micro-batch-size", "1", "--seq-len", "4096")
    wanted = {"dp": 16, "zero": 3, "shard_replicas": 8, "recompute": "layer", "reduce_dtype": "16-bit", "batch_size": 16}
    tap.ok({key: plan.get(key) for key in wanted} == wanted, "accelerate's YAML: hybrid shards in machines", said)
    with open(os.path.join(folder, "beside", "config.json")) as file:
        config = file.read()
    plan, said = plan_of("config.json", config, *H100, "--dp", "8", "--batch-size", "8", "--micro-batch-size", "1", "--seq-len", "2048")
    tap.ok(plan and said["model"]["num_hidden_layers"] == 16, "a config.json is the model", said)
    plan, said = plan_of("job.toml", TITAN, "--machine", "h100", "--gpus", "16", "--tp", "4", "--zero", "0", "--reduce-dtype", "auto", "--like",
                         "ranvier")
    tap.ok(plan.get("tp") == 4 and plan.get("dp") == 4 and plan.get("zero") == 0 and plan.get("like") == "ranvier",
           "the user's own flags win, and replicas follow", said)
    arguments = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 64 --vocab-size 300\n" \
                "--micro-batch-size 1 --global-batch-size 8 --bf16 --overlap-param-gather --log-interval 1\n"
    plan, said = plan_of("arguments.txt", arguments, *H100)
    tap.ok(plan and said["model"]["name"] == "arguments.txt" and said["model"]["n_embd"] == 64 and plan["precision"] == "bf16" and
           said["from"]["not_modelled"] == ["--overlap-param-gather"] and said["from"]["without_meaning"] == ["--log-interval"],
           "a list of arguments describes a model that is no preset; what is not used is told", said)
    status, _, err = ranvier.run(["train", "--from", "arguments.txt", "--data", write("text.txt", "a few words " * 400), "--steps", 2], folder=folder)
    tap.ok(status == 0 and "of Megatron-LM" in err, "train takes it too", err)


# ---- the tools' own parsers ----


def check_tools(tap, folder):
    run = ["llama3-8b", "--machine", "h100", "--gpus", "32", "--dp", "8", "--tp", "4", "--sequence-parallel", "--zero", "3", "--shard-replicas", "4",
           "--reduce-dtype", "fp32", "--micro-batch-size", "2", "--batch-size", "32", "--recompute", "layer", "--order", "replicas", "--ignore-memory"]
    report, said = report_of(folder, [*run, "--launch", "torchtitan=t.toml"])
    if not report:
        tap.ok(False, "a job of torchtitan is written", said)
        return
    with open(os.path.join(folder, "t.toml"), "rb") as file:
        job = tomllib.load(file)
    tap.ok(job["parallelism"] == {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 4, "tensor_parallel_degree": 4} and
           job["training"]["local_batch_size"] == 2 and job["training"]["global_batch_size"] == 32, "Python's tomllib reads torchtitan's job", job)
    report, said = report_of(folder, ["llama3-8b", *H100, "--gpus", "8", "--dp", "8", "--zero", "2", "--offload", "--micro-batch-size", "2", "--batch-size", "32",
                                      "--precision", "bf16", "--launch", "deepspeed=d.json"])
    tap.ok(report, "a configuration of DeepSpeed is written", said)
    with open(os.path.join(folder, "a.yaml"), "w") as file:
        file.write(ACCELERATE)
    check_tool(tap, folder, "torchtitan", TITAN_ALONE, "job = ConfigManager().parse_args(['--job.config_file', 't.toml'])\n"
               "p, t = job.parallelism, job.training\n"
               "assert (p.data_parallel_replicate_degree, p.data_parallel_shard_degree, p.tensor_parallel_degree) == (2, 4, 4), p\n"
               "assert (t.local_batch_size, t.global_batch_size, t.seq_len) == (2, 32, 8192) and job.activation_checkpoint.mode == 'full', t\n")
    check_tool(tap, folder, "deepspeed", "import deepspeed.runtime.config as config\n",
               "class Eight:\n"  # replicas, which its check of the batch counts
               "    get_data_parallel_world_size = staticmethod(lambda: 8)\n"
               "config.dist.get_rank = lambda: 0\n"
               "c = config.DeepSpeedConfig('d.json', mpu=Eight)\n"
               "assert c.train_micro_batch_size_per_gpu == 2 and c.gradient_clipping == 1.0, c.__dict__\n"
               "assert c.zero_config.stage == 2 and c.zero_config.offload_optimizer.device == 'cpu', c.zero_config\n")
    check_tool(tap, folder, "accelerate", "from accelerate.commands.config.config_args import load_config_from_file\n",
               "c = load_config_from_file('a.yaml')\n"
               "assert c.num_processes == 16 and c.fsdp_config['fsdp_sharding_strategy'] == 'HYBRID_SHARD', c\n")


# torchtitan's package imports models, which want a newer PyTorch than Debian's; its parser of jobs does not.
TITAN_ALONE = """import importlib.util, sys, types
place = importlib.util.find_spec("torchtitan").submodule_search_locations[0]
for name in ("torchtitan", "torchtitan.tools"):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [place + name[len("torchtitan"):].replace(".", "/")]
from torchtitan.config.manager import ConfigManager
"""


def check_tool(tap, folder, name, imports, use):
    """With the tool's package, which `make test-launch` installs, its own parser takes the file."""
    environment = dict(os.environ, WORLD_SIZE="8", RANK="0", LOCAL_RANK="0")
    there = subprocess.run([sys.executable, "-c", imports], cwd=folder, env=environment, capture_output=True, text=True)
    if there.returncode:
        why = (there.stderr.strip().splitlines() or ["?"])[-1]
        tap.count += 1
        print(f"ok {tap.count} - {name}'s own parser # SKIP {why}: make test-launch installs what it can")
        return
    done = subprocess.run([sys.executable, "-c", imports + use], cwd=folder, env=environment, capture_output=True, text=True)
    tap.ok(done.returncode == 0, f"{name}'s own parser takes it", done.stderr)


def check_slurm(tap, folder):
    report, said = report_of(folder, ["llama3-8b", "--machine", "h100", "--gpus", "16", "--dp", "16", "--zero", "1", "--micro-batch-size", "1", "--batch-size",
                                      "16", "--ignore-memory", "--launch", "megatron=m.sh,slurm=j.sh"])
    texts = {}
    for name in ("m.sh", "j.sh") if report else ():
        with open(os.path.join(folder, name)) as file:
            texts[name] = file.read()
    checked = [subprocess.run(["bash", "-n", name], cwd=folder).returncode for name in texts]
    tap.ok(report and checked == [0, 0] and "#SBATCH --nodes=2" in texts["j.sh"] and "bash m.sh" in texts["j.sh"] and
           sorted(os.listdir(folder)) == ["j.sh", "m.sh", "report.json"], "a job of Slurm starts the script that is beside it", said)
    status, _, err = ranvier.run(["simulate", "gpt-12b", "--machine", "8xh100", "--pp", "8", "--micro-batch-size", "1", "--batch-size", "64",
                                  "--ignore-memory", "--launch", "megatron=other.sh"], folder=folder)
    tap.ok(status == 2 and "--schedule axonn is nothing that Megatron-LM can be told" in err and "other.sh" not in os.listdir(folder),
           "a schedule that a tool has not is refused by name, and nothing is written", err)


# ---- the document ----


def check_kernels(tap, folder):
    """Whose kernels the time is of, where a script is of one tool and the prediction of another."""
    plan = ["simulate", "llama3-8b", "--machine", "8xh100", "--dp", "8", "--zero", "1", "--micro-batch-size", "1", "--batch-size", "64", "--recompute", "layer"]
    for tool, file, like, told in (("megatron", "a.sh", (), True), ("megatron", "b.sh", ("--like", "megatron"), False), ("ranvier", "c.sh", (), False)):
        status, said, err = ranvier.run([*plan, *like, "--launch", f"{tool}={file}"], folder=folder)
        tap.ok(status == 0 and (f"ranvier's own kernels; --like {tool} predicts" in said) == told,
               f"{tool} {' '.join(like)}: {'it is told' if told else 'nothing is told'} whose kernels the time is of", said + err)


def lists():
    """The lists of docs/launch.md, of the rows of the tools' tables."""
    text = ""
    for tool in ("Megatron-LM", "torchtitan", "DeepSpeed", "accelerate"):
        name = tool.lower().replace("-lm", "")
        with open(os.path.join(TREE, "runtime", "launch", name + ".c")) as file:
            source = file.read()
        for short, prefix in re.findall(r'#define (\w+) +"(.*)"', source):
            source = source.replace(f'{{{short} "', f'{{"{prefix}')
        rows = re.findall(r'^ *\{"([^"]+)",\s+(?:"([^"]+)"|NULL),\s+\.how = (ROW_\w+)(?:,\s+"([^"]*)")?', source, re.M)
        text += f"\n### {tool}\n\n| there | here |\n|---|---|\n"
        for key, flag, how, values in rows:
            if flag and how not in ("ROW_MODEL", "ROW_OWN"):
                pairs = " ".join(values.split()) if how == "ROW_CHOICE" else values.split()[0] if values else ""
                text += f"| `{key}` | `--{flag}`{' ' + pairs if pairs and pairs != 'yes' else ''} |\n"
            elif how == "ROW_OWN" and flag:
                text += f"| `{key}` | [`--{flag}`] |\n"
        for title, kind in (("The model, and what flags above follow from", "ROW_MODEL"), ("Only as it is built", "ROW_ONLY"), ("Not modelled", "ROW_UNMODELLED")):
            keys = [key for key, flag, how, _ in rows if how == kind or (kind == "ROW_MODEL" and how == "ROW_OWN" and not flag)]
            if keys:
                text += f"\n{title}: {', '.join(f'`{key}`' for key in keys)}.\n"
    return text


def check_document(tap):
    path = os.path.join(TREE, "docs", "launch.md")
    with open(path) as file:
        head, mark, tail = file.read().partition("## What is known of each tool\n")
    first = tail.lstrip("\n").split("\n\n")[0]
    if os.environ.get("GOLDEN"):
        with open(path, "w") as file:
            file.write(f"{head}{mark}\n{first.rstrip()}\n{lists()}")
        with open(path) as file:
            tail = file.read().partition(mark)[2]
    tap.ok(tail == f"\n{first.rstrip()}\n{lists()}", "docs/launch.md lists what the tables have (GOLDEN=1 rewrites it)")


def main():
    tap = ranvier.Tap()
    check_document(tap)
    for check in (check_bash, check_kinds, check_tools, check_slurm, check_kernels):
        with tempfile.TemporaryDirectory() as folder:
            check(tap, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_tables(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
