#!/usr/bin/python3
"""Wrong input: each command below ends with one sentence, the right exit status, and leaves no file.
Where a plan needs too much memory, a breakdown comes before the sentence. The sentences are in tests/golden/bad_input.txt (GOLDEN=1 rewrites it). Then: ranks that die, and jobs that are stopped."""
import concurrent.futures
import contextlib
import glob
import gzip
import hashlib
import json
import os
import queue
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import tensors
import text

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(TESTS, "golden", "bad_input.txt")
LIMIT_SECONDS = 1800  # only so that one that hangs ends, however busy the machine is
END_SECONDS = 1800  # a limit against hanging: what a job may go on when one of its ranks has died
USAGE, FAILED = 2, 1

# A plan and a prediction with nothing wrong in them: a case adds what is wrong (the last of an option counts).
TRAIN = "--data text.txt --batch-size 4 --micro-batch-size 1 --steps 2 --threads 2"
SIMULATE = "--profile a100-datasheet --precision fp32 --platform generic --gpus 2 --pp 2 --batch-size 4 --micro-batch-size 1"
SWEEP = "--profile v100-datasheet --platform summit --gpus 2,4 --batch-size 16"
MIXED = "--precision mixed --offload"
SUMMIT = f"--profile v100-datasheet --platform summit {MIXED}"
LOCAL = f"--platform local {MIXED}"
REPLAY = "simulate tiny --gpus 2 --pp 2 --batch-size 4 --micro-batch-size 1 --replay "
ALONE, BOTH = (0,), (0, 2)  # without mpirun; and also under mpirun -n 2, where rank 0 alone must say the same


def train(what, options, status=USAGE, model="tiny", ranks=BOTH):
    return case(f"train: {what}", f"train {model} TRAIN {options}".strip(), status, ranks)


def simulate(what, options, status=USAGE, model="tiny"):
    return case(f"simulate: {what}", f"simulate {model} SIMULATE {options}".strip(), status)


def sweep(what, options, status=USAGE):
    return case(f"sweep: {what}", f"sweep tiny SWEEP {options}", status)


def plan(what, options, status=USAGE):
    return case(f"plan: {what}", f"plan {options}", status)


def validate(what, options):
    return case(f"validate: {what}", f"validate {options}")


def calibrate(what, options):
    return case(f"calibrate: {what}", f"calibrate --quick --model tiny --out p.json {options}")


def traced(what, trace, options="", model="pytorch_model.json"):
    return case(f"calibrate: a trace {what}",
                f"calibrate --from-trace {trace} --model {model} --micro-batch-size 2 --seq-len 48 --out p.json {options}".strip())


def case(what, line, status=USAGE, ranks=ALONE):
    return what, line, status, ranks


def too_large(row):
    """The case is one of a plan that needs more memory than there is: the lines before the sentence say for what."""
    BREAKDOWNS.add(row[0])
    return row


BREAKDOWNS = set()


CASES = [
    case("a command that does not exist", "trian tiny", ranks=BOTH),
    case("a command that is near to none", "fly tiny"),
    case("an option of the dispatcher that does not exist", "--nonsense"),

    case("train with nothing", "train", ranks=BOTH),
    train("an option that does not exist", "--colour"),
    train("the beginning of an option", "--batch 512"),
    train("another framework's option", "--tensor-model-parallel-size 2"),
    train("an option of ours and of others, misspelt", "--pipeline 2"),
    train("a learning rate as others call it", "--learning-rate 1e-3", ranks=ALONE),
    train("no checkpoint to go on from", "--resume model.safetensors"),
    train("checkpoints without a folder", "--checkpoint-every 5", ranks=ALONE),
    train("restarts without checkpoints", "--restarts 2 --checkpoint model", ranks=ALONE),
    train("restarts under mpirun", "--restarts 2", ranks=(2,)),
    train("hosts without restarts", "--hosts a:2", ranks=ALONE),
    train("a list of hosts that is none", "--hosts a:2,,b", ranks=ALONE),
    train("a host without room", "--hosts a:0", ranks=ALONE),
    train("a file of hosts that names none", "--restarts 2 --hostfile empty.txt", ranks=ALONE),
    train("hosts with too few slots", "--pp 2 --restarts 2 --checkpoint model --checkpoint-every 1 --hosts a", ranks=ALONE),
    train("ranks that the grid has not", "--pp 2 --restarts 2 --ranks 3", ranks=ALONE),
    train("an option without its argument", "--steps"),
    train("a number that is none", "--steps abc"),
    train("a number with more behind it", "--batch-size 4x"),
    train("a negative number", "--micro-batch-size -1"),
    train("a zero", "--batch-size 0"),
    train("a number beyond 64 bits", "--seq-len 99999999999999999999"),
    train("a learning rate that is not a number", "--lr nan"),
    train("a negative learning rate", "--lr -1"),
    train("a warm-up as long as the training", "--warmup 2"),
    train("one word too many", "large"),
    train("a schedule that does not exist", "--schedule lifo"),
    train("a grid with too few ranks", "--pp 3", ranks=BOTH),
    train("a grid with too many ranks", "--pp 1 --dp 1", ranks=(2,)),
    train("more stages than layers", "--pp 5", ranks=(5,)),
    train("a batch that does not divide", "--batch-size 6 --micro-batch-size 4"),
    train("a sequence longer than the model's", "--seq-len 65"),
    case("train: no data", "train tiny --batch-size 4 --micro-batch-size 1", ranks=BOTH),
    case("train: no batch", "train tiny --data text.txt", ranks=BOTH),
    train("--tp with too few ranks", "--tp 2", ranks=BOTH),
    train("--tp that does not divide the heads", "--tp 3 --dp 1", ranks=(3,)),
    train("--ep that does not divide --dp", "--dp 3 --ep 2", ranks=(3,), model="mixtral-tiny"),
    train("--ep that does not divide the experts", "--dp 3 --ep 3", ranks=(3,), model="mixtral-tiny"),
    train("--etp that is neither 1 nor --tp", "--dp 2 --tp 2 --ep 2 --etp 3 --sequence-parallel", ranks=(4,), model="deepseek-tiny"),
    train("--etp 1 and --ep that the ranks do not divide", "--dp 3 --tp 2 --ep 4 --etp 1 --sequence-parallel --batch-size 12", ranks=(6,), model="deepseek-tiny"),
    train("--etp 1 of a router with a balancing loss", "--dp 2 --tp 2 --ep 4 --etp 1 --sequence-parallel", ranks=(4,), model="mixtral-tiny"),
    train("--etp 1 without --ep", "--dp 2 --tp 2 --etp 1 --sequence-parallel", ranks=(4,), model="deepseek-tiny"),
    train("--etp 1 without --sequence-parallel", "--dp 2 --tp 2 --ep 4 --etp 1", ranks=(4,), model="deepseek-tiny"),
    train("--etp 1 with stages between its ranks", "--pp 2 --dp 2 --tp 2 --ep 4 --etp 1 --sequence-parallel --schedule 1f1b", ranks=(8,), model="deepseek-tiny"),
    train("--ep of a model without experts", "--dp 2 --ep 2", ranks=(2,)),
    train("--dispatcher that is not built for training", "--dp 2 --ep 2 --dispatcher deepep", ranks=(2,), model="mixtral-tiny"),
    train("--dispatcher that does not exist", "--dp 2 --ep 2 --dispatcher nccl", ranks=(2,), model="mixtral-tiny"),
    train("--ep that is no number", "--ep two", model="mixtral-tiny", ranks=ALONE),
    train("--ep and a schedule of backwards in parts", "--pp 1 --dp 2 --ep 2 --schedule zero-bubble", ranks=(2,), model="mixtral-tiny"),
    train("--cp whose pieces do not divide the sequence", "--dp 1 --cp 3", ranks=(3,)),
    train("--cp without fused kernels", "--dp 1 --cp 2 --fusion off", ranks=(2,)),
    train("--cp of a mixture whose loss balances experts", "--dp 1 --cp 2", ranks=(2,), model="mixtral-tiny"),
    train("--ep and overlapped sums", "--dp 2 --ep 2 --overlap-allreduce", ranks=(2,), model="mixtral-tiny"),
    train("--device cuda", "--device cuda"),
    simulate("the beginning of an option", "--prof a100-datasheet"),
    simulate("an option of training", "--max-steps 5"),
    simulate("more virtual stages than layers", "--schedule interleaved --virtual-stages 3"),
    simulate("more layers on the last stage than there are", "--split 4"),
    simulate("a split that there is not", "--split uneven"),
    simulate("a last stage without layers, of two that share gradients", "--split 0 --gpus 4 --pp 2 --dp 2 --zero 2"),
    simulate("a last stage without layers whose backward is in two parts", "--split 0 --schedule zero-bubble"),
    simulate("fewer than no layers on the last stage", "--split -1"),
    simulate("a split of chunks", "--schedule interleaved --virtual-stages 2 --split balanced"),
    simulate("interleaved without chunks", "--schedule interleaved"),
    simulate("chunks of another schedule", "--virtual-stages 2"),
    simulate("groups of micro-batches that do not come out even", "--schedule interleaved --virtual-stages 2 --batch-size 3"),
    train("zero-bubble that offloads activations", "--schedule zero-bubble --offload-activations"),
    train("axonn with blocking messages", "--p2p blocking"),

    train("--offload with fp32", "--offload"),
    train("--offload with a value", "--precision mixed --offload=maybe", ranks=ALONE),
    train("a precision of another name", "--precision int8"),
    train("products in fp8", "--precision fp8"),
    train("fusion of another kind", "--fusion yes"),
    train("fusion of nothing", "--fusion=", ranks=ALONE),
    train("a device that there is not", "--device tpu"),
    train("a precision that is a number format", "--precision fp16", ranks=ALONE),
    train("an empty precision", "--precision=", ranks=ALONE),
    train("a recomputation that does not exist", "--recompute some", ranks=ALONE),
    train("a stage of zero that there is not", "--zero 4"),
    train("units of zero 3 without it", "--unit-layers 2"),
    train("groups that share nothing", "--zero 0 --shard-replicas 1"),
    simulate("hybrid shards that do not divide", "--pp 1 --dp 2 --zero 3 --shard-replicas 3"),
    train("gathered ahead without zero 3", "--zero 1 --prefetch 2"),
    train("weights that stay without zero 3", "--reshard-after-forward off"),
    train("gathered once a batch without zero 3", "--gather-each batch"),
    train("weights that stay anyway", "--zero 3 --reshard-after-forward off --gather-each batch"),
    train("offloaded parameters that replicas do not share", "--zero 2 --offload-parameters"),
    train("sums in fp32 of what is not reduced", f"{MIXED} --zero 1 --reduce-dtype fp32"),
    train("sums in fp32 in fp32", "--zero 2 --reduce-dtype fp32"),
    train("sums in fp32 once a batch", f"{MIXED} --zero 3 --reduce-dtype fp32 --gather-each batch"),
    train("gathers by arrival", "--zero 3 --offload-activations --pipeline-limit 8"),
    train("overlapped sums of layers that replicas share", "--zero 3 --overlap-allreduce"),
    train("overlapped sums of what", "--overlap-allreduce=all"),
    train("an empty bucket", f"{MIXED} --bucket-params 0"),
    train("a bucket larger than the parameters", f"{MIXED} --bucket-params 61121"),
    train("a bucket that is no number", "--bucket-params half", ranks=ALONE),
    train("no buckets an all-reduce", "--allreduce-buckets 0", ranks=ALONE),
    train("a device memory of nothing", "--device-memory 0"),
    train("a negative device memory", "--device-memory -1", ranks=ALONE),
    train("a device memory in words", "--device-memory lots", ranks=ALONE),
    train("a device memory beyond all numbers", "--device-memory 1e400GiB", ranks=ALONE),
    train("a device memory in an unknown unit", "--device-memory 10XB", ranks=ALONE),
    train("a host memory without a size", "--host-memory=", ranks=ALONE),
    too_large(train("a device memory below one layer", "--device-memory 10kB")),
    too_large(train("a device memory below the plan", "--device-memory 1MiB --threads 1", ranks=ALONE)),
    too_large(train("a host memory below what is offloaded", f"{MIXED} --host-memory 100KiB")),
    too_large(train("both memories too small", f"{MIXED} --host-memory 1 --device-memory 1", ranks=ALONE)),
    train("a host link of no bytes", "--host-link 0"),
    train("a host link that stands still", "--host-link 0GB/s", ranks=ALONE),
    train("a negative host link", "--host-link -1GB/s", ranks=ALONE),
    train("a host link that is a size", "--host-link 1GB", ranks=ALONE),
    train("a host link in words", "--host-link fast", ranks=ALONE),
    train("a network of no bytes", "--net-link 0", ranks=ALONE),
    train("a network in words", "--net-link fast", ranks=ALONE),
    train("an overflow in fp32", "--inject-overflow 1"),
    train("an overflow beyond the steps", "--precision mixed --inject-overflow 3"),
    train("an overflow on no step", "--precision mixed --inject-overflow 0", ranks=ALONE),
    train("an overflow on a rank that there is not", "--precision mixed --inject-overflow 1:2"),
    train("an overflow in words", "--precision mixed --inject-overflow always", ranks=ALONE),
    train("an overflow on half a rank", "--precision mixed --inject-overflow 1:", ranks=ALONE),
    train("a clip that is not a number", "--clip nan", ranks=ALONE),
    train("tokens that are not a number", "--tokens nan", ranks=ALONE),
    train("a decay that forgets nothing", "--beta1 1", ranks=ALONE),

    train("an empty name of a model", "", model="''", ranks=ALONE),
    train("a preset that does not exist", "", model="gigantic"),
    train("a model file that does not exist", "", model="missing.json"),
    train("a model file that is empty", "", model="empty.json"),
    train("a model file cut short", "", model="model_truncated.json"),
    train("a model file with a comma too many", "", model="model_malformed.json"),
    train("a model file that is a folder", "", model="./folder"),
    train("a model without a layer count", "", model="model_no_layers.json"),
    train("a model with a misspelt key that need not be there", "", model="model_untied.json"),
    train("a model of a family that is not built", "", model="model_neox.json"),
    train("a Llama with a sliding window", "", model="model_window.json"),
    train("a Llama with rotary positions scaled in a way that is not built", "", model="model_rope.json", ranks=ALONE),
    train("sequences beyond a Mistral's window", "--seq-len 48", model="model_mistral.json"),
    simulate("sequences beyond a preset's window", "--pp 1 --seq-len 8192 --gpus 1 --schedule 1f1b", model="mistral-7b"),
    train("a Qwen3 without the size of its heads", "", model="model_qwen3.json", ranks=ALONE),
    train("a Llama with another activation", "", model="model_activation.json", ranks=ALONE),
    train("a Llama whose heads those of keys and values do not divide", "", model="model_kv.json"),
    train("more experts of a token than a layer has", "", model="model_chosen.json", ranks=ALONE),
    train("experts in some layers only", "", model="model_dense.json", ranks=ALONE),
    train("experts in every second layer", "", model="model_sparse.json", ranks=ALONE),
    train("experts that are chosen in another way than is built", "", model="model_deepseek.json", ranks=ALONE),
    simulate("shards that do not divide the heads of keys and values", "--pp 1 --tp 4 --gpus 4 --schedule 1f1b", model="llama-tiny"),
    train("a model of another family that does not say which", "", model="model_family.json", ranks=ALONE),
    train("a checkpoint for a model", "", model="whole.safetensors"),
    train("heads that do not divide", "", model="model_heads.json"),
    train("a model of absurd size", "", model="model_absurd.json"),
    too_large(train("a model far larger than the memory", "", model="model_large.json")),
    train("a model whose bytes pass 64 bits", "--batch-size 2097152 --micro-batch-size 1048576", model="model_limits.json"),
    too_large(train("a micro-batch far larger than the memory", "--batch-size 1048576 --micro-batch-size 524288",
                    model="gpt2-124m")),
    train("more optimizer updates than can be scheduled", "--bucket-params 1", model="model_large.json"),
    train("a message beyond what MPI counts", "--pp 2 --batch-size 262144 --micro-batch-size 262144", ranks=(2,)),

    train("a text that does not exist", "--data missing.txt"),
    train("a text that is empty", "--data empty.txt"),
    train("a text shorter than a sequence", "--data short.txt"),
    train("a text too short for validation", "--data short.txt --validation-fraction 0.5 --seq-len 16"),
    train("a folder as text", "--data folder"),
    train("a device as text", "--data /dev/zero"),
    train("tokens that do not exist", "--data missing.bin"),
    train("tokens cut in the middle of one", "--data odd.bin"),
    train("tokens cut short of what their header counts", "--data truncated.bin"),
    train("tokens whose header is cut short", "--data header.bin"),
    train("tokens with the magic number of another format", "--data magic.bin"),
    train("tokens beyond the vocabulary", "--data beyond.bin"),
    train("NaN as tokens", "--data nan.bin"),
    train("floats as tokens", "--data floats.bin", ranks=ALONE),
    train("tokens of 32 bits", "--data wide.bin", ranks=ALONE),
    train("a text beyond the vocabulary", "--data latin.txt", model="model_ascii.json", ranks=ALONE),

    train("a report in a folder that does not exist", "--report nowhere/report.json"),
    train("a log below a regular file", "--log text.txt/log.csv"),
    train("a checkpoint into a folder with other files", "--checkpoint notes"),
    train("a checkpoint into a folder of others", "--checkpoint hf_whole"),
    train("a checkpoint below a regular file", "--checkpoint text.txt/model"),
    train("a checkpoint in the place of the initial weights", "--init whole.safetensors --checkpoint ./whole.safetensors"),

    train("initial weights that do not exist", "--init missing"),
    train("initial weights in an empty folder", "--init folder"),
    train("initial weights of PyTorch's own format", "--init hf_pickled"),
    train("a text as initial weights", "--init text.txt"),
    train("a config as initial weights", "--init hf_whole/config.json", ranks=ALONE),
    train("initial weights whose header would take all memory", "--init hf_header"),
    train("initial weights whose header is a deep nest", "--init hf_nest", ranks=ALONE),
    train("initial weights of which a part is cut short", "--init hf_cut"),
    train("initial weights of which a part is missing", "--init hf_part"),
    train("initial weights whose index leads out of their folder", "--init hf_outside"),
    train("initial weights whose index names a wrong file", "--init hf_index", ranks=ALONE),
    train("initial weights whose index is cut short", "--init hf_index_cut", ranks=ALONE),
    train("initial weights with a tensor in two files", "--init hf_twice", ranks=ALONE),
    train("initial weights with a tensor of another shape", "--init hf_shape"),
    train("initial weights without a tensor", "--init hf_missing"),
    train("initial weights with a tensor too many", "--init hf_extra"),
    train("initial weights with a tensor of integers", "--init hf_integers"),
    train("initial weights that share bytes", "--init hf_shared", ranks=ALONE),
    train("initial weights that are not finite", "--init hf_nan"),
    train("initial weights that are not finite, on the second stage", "--init hf_nan --pp 2", ranks=(2,)),
    train("initial weights of another model", "--init hf_whole", model="llama-tiny"),
    train("initial weights of a model with other heads", "--init hf_heads"),
    train("initial weights of a model that is not built", "--init hf_mamba", ranks=ALONE),
    case("train: initial weights whose config has more layers", "train --init hf_layers TRAIN"),
    case("train: initial weights that do not say of which model", "train --init hf_bare TRAIN", ranks=ALONE),
    train("a folder of weights as a model without a config", "", model="./hf_bare", ranks=ALONE),
    train("a trace without a name", "--trace="),
    train("two outputs of one name", "--report out --log out"),
    train("an output that would replace the data", "--log ./text.txt"),
    train("an output that would replace the model", "--trace model.json", model="model.json"),
    train("a report on a full disk", "--report /dev/full", FAILED),
    train("a log on a full disk", "--log /dev/full", FAILED),
    train("a trace on a full disk", "--trace /dev/full", FAILED),
    train("a checkpoint on a full disk", "--checkpoint /dev/full", FAILED),
    train("a training that diverges", "--lr 10 --min-lr 10 --weight-decay 10 --clip 0 --warmup 0 --steps 1000 "
          "--report r.json --checkpoint c --trace t.json", FAILED),

    simulate("a grid that is not the GPUs", "--gpus 3"),
    simulate("no number of GPUs", "--gpus="),
    simulate("more stages than layers", "--gpus 5 --pp 5"),
    simulate("no GPUs", "--gpus 0"),
    simulate("--tp with too few GPUs", "--tp 2 --gpus 1"),
    simulate("--tp that does not divide the heads", "--tp 3 --gpus 6 --schedule 1f1b"),
    simulate("parts of sequences and a schedule that decides by arrival", "--cp 2 --pp 3 --gpus 6"),
    simulate("--sequence-parallel without shards", "--sequence-parallel"),
    simulate("pieces of products without shards", "--tp-overlap 2"),
    simulate("too many pieces of products", "--tp 2 --tp-overlap 9"),
    simulate("a profile that does not exist", "--profile missing.json"),
    simulate("a profile cut short", "--profile profile_truncated.json"),
    simulate("a profile that is none", "--profile model.json"),
    simulate("a report as profile", "--profile measured.json"),
    simulate("a profile with a negative time", "--profile profile_negative.json"),
    simulate("a profile with a misspelt parameter of a model", "--profile profile_misspelt.json"),
    simulate("a profile with a misspelt member", "--profile profile_member.json"),
    simulate("a profile with a misspelt member of a load", "--profile profile_load.json"),
    simulate("a profile with a rate of zero", "--profile profile_zero_rate.json"),
    simulate("a profile with an efficiency in percent", "--profile profile_efficiency.json"),
    simulate("a profile with a part of a tile", "--profile profile_tile.json"),
    simulate("a profile with a rate of nearly nothing", "--profile profile_slow.json"),
    simulate("a profile with an endless overhead", "--profile profile_endless.json"),
    simulate("a profile of before kernels had models", "--profile profile_before.json"),
    simulate("a profile without a needed kernel", "--profile profile_kernel.json"),
    simulate("a profile without a model of it", "--profile profile_points.json --fits-only"),
    simulate("a measured profile without a needed kernel", "--profile profile_measured.json"),
    simulate("a measured profile without a model of it", "--profile profile_measured_points.json --fits-only"),
    simulate("a datasheet as the local machine", "--platform local"),
    simulate("a platform that does not exist", "--platform atlantis"),
    simulate("a platform file that does not exist", "--platform missing.json"),
    simulate("a profile as platform", "--platform profile_kernel.json"),
    simulate("a platform cut short", "--platform platform_truncated.json"),
    simulate("a platform that is not JSON", "--platform platform_malformed.json"),
    simulate("a platform of too few GPUs", "--gpus 1024 --pp 4 --dp 256 --batch-size 256"),
    simulate("a SimGrid platform that is none", "--platform platform.xml"),
    too_large(simulate("a plan that does not fit", "--gpus 1 --pp 1", model="gpt-12b")),
    simulate("--offload with fp32", "--offload"),
    simulate("a precision of another name", "--precision int8"),
    simulate("a plan of another tool that does not exist", "--from missing.sh"),
    simulate("no name of one", "--from="),
    simulate("an empty one", "--from empty.json"),
    simulate("what is no text", "--from magic.bin"),
    simulate("a text without a launch in it", "--from text.txt"),
    simulate("a script with a variable that has no value", "--from launch_unset.sh"),
    simulate("a script with a flag that is not known", "--from launch_unknown.sh"),
    simulate("a script with a number that is none", "--from launch_number.sh"),
    simulate("a script that recomputes layers together", "--from launch_recompute.sh"),
    simulate("a script whose experts are gathered", "--from launch_experts.sh"),
    case("simulate: a script of a model of no family", "simulate --from launch_family.sh --machine h100"),
    case("simulate: a script that does not say its vocabulary", "simulate --from launch_vocabulary.sh --machine h100"),
    case("simulate: a script whose heads do not divide its width", "simulate --from launch_heads.sh --machine h100"),
    case("simulate: a script whose sizes do not divide its GPUs", "simulate --from launch_gpus.sh --machine h100"),
    simulate("a script whose variables grow", "--from launch_grows.sh"),
    simulate("a script with an array of thousands of words", "--from launch_chunks.sh"),
    simulate("a script with expansions inside each other", "--from launch_deep.sh"),
    simulate("a script with sums inside each other", "--from launch_sums.sh"),
    simulate("a script that starts itself", "--from launch_shells.sh"),
    simulate("a TOML of another tool", "--from launch_other.toml"),
    simulate("a TOML with arrays inside each other", "--from launch_deep.toml"),
    simulate("a job with a negative number of layers", "--from launch_stages.toml"),
    simulate("a TOML cut short", "--from launch_truncated.toml"),
    simulate("a TOML with a key twice", "--from launch_twice.toml"),
    simulate("a TOML with a date", "--from launch_date.toml"),
    case("simulate: a job of a model that is not here", "simulate --from launch_flavor.toml --machine h100 --gpus 8"),
    simulate("a job with a key that is not known", "--from launch_key.toml"),
    simulate("a JSON of no kind", "--from launch_other.json"),
    simulate("a JSON cut short", "--from launch_truncated.json"),
    case("simulate: a configuration that names no model", "simulate --from launch_zero.json --machine 8xh100"),
    simulate("a configuration that offloads to disks", "--from launch_nvme.json"),
    simulate("a YAML of no kind", "--from launch_other.yaml"),
    simulate("a YAML that is none", "--from launch_malformed.yaml"),
    simulate("a tool to launch that does not exist", "--launch nemo=run.sh"),
    simulate("a tool to launch without a file", "--launch megatron"),
    simulate("a tool to launch twice", "--launch megatron=a.sh,megatron=b.sh"),
    simulate("a job of Slurm that starts nothing", "--launch slurm=job.sh"),
    simulate("two tools in one file", "--launch megatron=a.sh,ranvier=a.sh"),
    simulate("a launch in a folder that does not exist", "--launch megatron=missing/a.sh"),
    simulate("a launch in the place of the report", "--launch megatron=a.sh --report a.sh"),
    simulate("a launch in the place of what is read", "--from launch_zero.json --launch deepspeed=launch_zero.json"),
    simulate("a report in the place of what is read", "--from launch_zero.json --report launch_zero.json"),
    train("a report in the place of what is read", "--from launch_zero.json --report launch_zero.json"),
    simulate("products in fp8, which the profile has not", "--precision fp8 --profile h100-published --platform dgx-h100"),
    simulate("fused kernels that the profile has not", "--fusion on"),
    simulate("a device that the profile is not of", "--device cpu"),
    simulate("a recomputation that does not exist", "--recompute selected"),
    simulate("zero 3 of a pipeline", "--zero 3"),
    simulate("zero 3 of backwards in parts", "--pp 1 --dp 2 --zero 3 --schedule zero-bubble"),
    simulate("zero in words", "--zero optimizer"),
    simulate("an empty bucket", f"{SUMMIT} --bucket-params 0"),
    simulate("a bucket larger than the parameters", f"{SUMMIT} --bucket-params 61121"),
    simulate("a device memory of nothing", "--device-memory 0"),
    simulate("a device memory beyond all numbers", "--device-memory 1e400GiB"),
    too_large(simulate("a device memory below one layer", f"{SUMMIT} --device-memory 10kB")),
    too_large(simulate("a device memory below the plan", f"{SUMMIT} --device-memory 700KiB")),
    too_large(simulate("a host memory below what is offloaded", f"{SUMMIT} --host-memory 100KiB")),
    too_large(simulate("a platform with too little host memory", f"{SUMMIT} --platform platform_one_byte.json")),
    simulate("--host-link, which is real", "--host-link 1GB/s"),
    simulate("--net-link on a platform that has links", "--net-link 1GB/s"),
    simulate("tokens that are not a number", "--tokens nan"),
    simulate("an empty name of a profile", "--profile="),
    simulate("an empty name of a platform", "--platform="),
    simulate("a profile in fp32 for a mixed plan", "--profile profile_fp32.json --precision mixed"),
    simulate("a profile in fp32 for a bf16 plan", "--profile profile_fp32.json --precision bf16"),
    simulate("bf16 on a GPU that has none", "--profile v100-datasheet --platform summit --precision bf16"),
    simulate("fused kernels on a GPU that has none", "--profile v100-datasheet --platform summit --precision mixed --fusion on"),
    simulate("a profile of half kernels for an fp32 plan", "--profile v100-datasheet --precision fp32"),
    simulate("a profile of before mixed precision", "--profile profile_old.json"),
    simulate("a profile without a copy", f"{LOCAL} --profile v100-datasheet"),
    simulate("a profile without an update beside copies", f"{LOCAL} --profile profile_no_offloaded_update.json"),
    simulate("a profile without a fetch", f"{LOCAL} --profile profile_no_fetch.json"),
    simulate("a profile without a write back", f"{LOCAL} --profile profile_no_write_back.json"),
    simulate("a negative host memory", "--platform platform_negative.json"),
    simulate("a host memory beyond all counting", "--platform platform_huge.json"),
    simulate("no sockets", "--platform platform_no_sockets.json"),
    simulate("half a socket", "--platform platform_half_socket.json"),
    simulate("sockets that do not divide the GPUs", "--platform platform_three_sockets.json"),
    simulate("a socket link without a source", "--platform platform_no_source.json"),
    simulate("a socket link without its latency", "--platform platform_no_latency.json"),
    simulate("a bandwidth in the unit of a size", "--platform platform_unit.json"),
    simulate("a bandwidth without a unit", "--platform platform_no_unit.json"),
    simulate("a bandwidth that is only a number", "--platform platform_number.json"),
    simulate("a bandwidth of nothing", "--platform platform_no_bandwidth.json"),
    simulate("a bandwidth of no machine", "--platform platform_endless_bandwidth.json"),
    simulate("a latency of more than an hour", "--platform platform_long.json"),
    simulate("an efficiency above 1", "--platform platform_efficiency.json"),
    simulate("a torus of more nodes than can be counted", "--platform platform_torus.json"),
    simulate("a dragonfly of too many routers", "--platform platform_routers.json"),
    simulate("groups of nodes that are numbers", "--platform platform_groups.json"),
    simulate("a fabric that does not exist", "--platform platform_fabric.json"),
    simulate("a torus without its link", "--platform platform_no_link.json"),
    simulate("a misspelt member of a platform", "--platform platform_misspelt.json"),
    simulate("a profile that is not of the platform's GPU", "--platform selene --profile v100-datasheet --precision mixed"),
    simulate("micro-batches far larger than any memory", "--batch-size 33554432 --micro-batch-size 1048576 --schedule gpipe",
             model="gpt-100b"),
    case("simulate: a trace that does not exist", REPLAY + "missing.json"),
    case("simulate: a report as trace", REPLAY + "measured.json"),
    case("simulate: a trace cut short", REPLAY + "trace_truncated.json --gpus 1 --pp 1"),
    case("simulate: a trace without a name", REPLAY[:-1] + "="),
    case("simulate: a step that was skipped", REPLAY + f"skipped.json --gpus 1 --pp 1 {MIXED}"),
    case("simulate: a batch that was not traced", REPLAY + f"skipped.json --gpus 1 --pp 1 {MIXED} --replay-batch 9"),
    case("simulate: a limit for a replay", REPLAY + f"skipped.json --gpus 1 --pp 1 {MIXED} --device-memory 1GiB"),
    simulate("a replay that is given a profile", "--replay measured.json"),
    simulate("a report in a folder that does not exist", "--report nowhere/report.json"),
    simulate("two outputs of one name", "--trace out --platform-xml ./out"),
    simulate("an output that would replace the profile", "--profile profile_kernel.json --report profile_kernel.json"),
    simulate("an output that would replace the model", "--trace ./model.json", model="model.json"),
    simulate("a report on a full disk", "--report /dev/full", FAILED),
    simulate("a trace on a full disk", "--trace /dev/full", FAILED),

    case("plan with nothing", "plan"),
    plan("no machine", "llama3-8b --gpus 8"),
    plan("no devices", "llama3-8b --machine h100"),
    plan("several numbers of devices", "llama3-8b --machine h100 --gpus 8,16"),
    plan("another machine", "llama3-8b --machine h1000 --gpus 8"),
    plan("a batch said twice", "llama3-8b --machine h100 --gpus 8 --batch-size 8 --batch-tokens 4M"),
    plan("a memory said twice", "llama3-8b --machine h100 --gpus 8 --memory 40GiB --device-memory 80GiB"),
    plan("a memory that is no size", "llama3-8b --machine h100 --gpus 8 --memory plenty"),
    plan("days that are none", "llama3-8b --machine h100 --gpus 8 --days 0"),
    plan("what fits nowhere", "llama3.1-405b --machine h100 --gpus 1"),
    plan("a report over the model", "llama3-8b --machine h100 --gpus 8 --report /nowhere/plan.json"),
    case("sweep with nothing", "sweep", ranks=BOTH),
    validate("a table that does not exist", "--table missing.csv"),
    validate("a device as a table", "--table /dev/zero"),
    validate("a folder as a table", "--table folder"),
    validate("a table of comments", "--table table_comments.csv"),
    validate("a table without a row", "--table table_no_rows.csv"),
    validate("a table without a needed column", "--table table_no_seq.csv"),
    validate("a table without what was measured", "--table table_no_figure.csv"),
    validate("a table with two columns of what was measured", "--table table_two_figures.csv"),
    validate("a table whose seconds have a unit", "--table table_two_units.csv"),
    validate("a table with a column twice", "--table table_twice.csv"),
    validate("a row with too many cells", "--table table_cells.csv"),
    validate("a row with a word for a number", "--table table_word.csv"),
    validate("a row that took no time", "--table table_zero.csv"),
    validate("a row with a quote that is not closed", "--table table_quote.csv"),
    validate("a row with an unknown unit", "--table table_unit.csv"),
    validate("a row whose grid is not its GPUs", "--table table_grid.csv"),
    validate("a row whose heads do not divide", "--table table_heads.csv"),
    validate("a row with an unknown recomputation", "--table table_recompute.csv"),
    validate("a row with an unknown schedule", "--table table_schedule.csv"),
    validate("a row on a GPU without a profile", "--table table_gpu.csv"),
    validate("a grid, which tables have", "--pp 4"),
    validate("a misspelt column", "--table table_misspelt.csv"),
    validate("a column that nobody knows", "--table table_own.csv"),
    validate("a row with far too many layers", "--table table_layers.csv"),
    validate("a row with far too many words", "--table table_vocab.csv"),
    validate("a row with far too many ranks", "--table table_ranks.csv"),
    validate("a row whose ranks pass 32 bits", "--table table_product.csv"),
    validate("a row with more GPUs than there are", "--table table_gpus.csv"),
    validate("a row whose plan asks for help", "--table table_plan_help.csv"),
    validate("a row whose plan says what columns say", "--table table_plan_over.csv"),
    validate("a row whose plan names a model", "--table table_plan_model.csv"),
    validate("a row whose plan has a misspelt flag", "--table table_plan_flag.csv"),
    validate("a row whose plan says what a column of a flag says", "--table table_plan_zero.csv"),
    validate("a row with a preset and layers", "--table table_preset_layers.csv"),
    validate("a row with neither a preset nor heads", "--table table_preset_none.csv"),
    validate("a row with an unknown preset", "--table table_preset_unknown.csv"),
    validate("a row with the flops of a preset", "--table table_preset_flops.csv"),
    validate("a row with a word for parts of sequences", "--table table_preset_cp.csv"),
    validate("a row with groups of replicas that do not divide them", "--table table_preset_groups.csv"),
    validate("a row on a platform that does not exist", "--table table_preset_platform.csv"),
    validate("a model", "tiny"),
    validate("a CSV in place of the table", "--table table_grid.csv --csv table_grid.csv"),
    sweep("the beginning of an option", "--sim 40"),
    validate("the beginning of an option", "--tab table.csv"),
    sweep("no GPUs", "--gpus 0"),
    sweep("GPUs with a hole", "--gpus 2,,4"),
    sweep("GPUs twice", "--gpus 2,2"),
    sweep("GPUs that no grid divides", "--gpus 7"),
    sweep("more GPUs than there are", "--gpus 100000"),
    sweep("--offload that is neither yes nor no", "--offload maybe"),
    sweep("offloading in fp32", "--offload yes --precision fp32"),
    sweep("a precision of another name", "--precision int8"),
    sweep("fused kernels that the profile has not", "--fusion on"),
    sweep("fusion of another kind", "--fusion maybe"),
    sweep("a recomputation that does not exist", "--recompute none,some"),
    sweep("a recomputation twice", "--recompute full,full"),
    sweep("an empty bucket", "--bucket-params 0"),
    sweep("a bucket larger than the parameters", "--bucket-params 61121"),
    sweep("a device memory of nothing", "--device-memory 0"),
    sweep("a device memory that fits nothing", "--device-memory 10kB"),
    sweep("a host memory that fits nothing", "--offload yes --host-memory 1"),
    sweep("a profile of another precision", "--profile profile_fp32.json --platform generic --precision mixed"),
    sweep("a profile that is not of the platform's GPU", "--profile a100-datasheet"),
    sweep("no jobs", "--jobs 0"),
    sweep("tokens that are not a number", "--tokens nan"),
    sweep("a CSV in a folder that does not exist", "--csv nowhere/sweep.csv"),
    sweep("a CSV over the model", "--csv ./model.json --platform model.json"),
    sweep("figures in a folder that does not exist", "--plot nowhere/sweep"),

    calibrate("the beginning of an option", "--prec fp32"),
    calibrate("--offload with fp32", "--offload"),
    calibrate("a precision of another name", "--precision mixed,fp8"),
    calibrate("an empty precision", "--precision="),
    calibrate("an empty bucket", "--precision mixed --offload --bucket-params 0"),
    calibrate("shards that do not divide the heads", "--tp 1,3"),
    calibrate("shards that do not divide the tokens", "--tp 4 --sequence-parallel --seq-len 1 --micro-batch-size 1"),
    calibrate("a host link that stands still", "--host-link 0GB/s"),
    calibrate("a host link in words", "--host-link fast"),
    calibrate("a device memory, which a profile does not have", "--device-memory 1GiB"),
    calibrate("an empty name of a model", "--model="),
    calibrate("an empty name of a profile", "--out="),
    case("calibrate without a place for its profile", "calibrate --quick", ranks=BOTH),
    case("calibrate for a number of ranks that is none", "calibrate --ranks two --out p.json"),
    case("calibrate with an option that does not exist", "calibrate --fast --out p.json", ranks=BOTH),
    case("calibrate for cuda", "calibrate --device cuda --out p.json", ranks=BOTH),
    case("calibrate for a model that does not exist", "calibrate --model gigantic --out p.json", ranks=BOTH),
    case("calibrate for more stages than layers", "calibrate --model tiny --pp 5 --out p.json", ranks=BOTH),
    case("calibrate for a list with a hole", "calibrate --micro-batch-size 1,,4 --out p.json", ranks=BOTH),
    case("calibrate on two ranks with an option that does not exist", "calibrate --ranks 2 --wrong --out p.json"),
    case("calibrate on two ranks without a place for its profile", "calibrate --ranks 2 --quick"),
    case("calibrate on two ranks into a folder that does not exist", "calibrate --ranks 2 --quick --out nowhere/p.json"),
    case("calibrate on two ranks for a model that does not exist", "calibrate --ranks 2 --model gigantic --out p.json"),
    case("calibrate into the model", "calibrate --model tiny,model.json --out ./model.json", ranks=BOTH),
    case("calibrate into a folder that does not exist", "calibrate --quick --out nowhere/p.json", ranks=BOTH),

    traced("that does not exist", "missing.json"),
    traced("that is a folder", "folder"),
    traced("that is a text", "text.txt"),
    traced("that is empty", "empty.json"),
    traced("that is another JSON", "model.json"),
    traced("without shapes", "pytorch_no_shapes.json"),
    traced("of a GPU without shapes", "pytorch_gpu.json"),
    traced("cut off in the middle", "pytorch_truncated.json"),
    traced("cut off in the middle, compressed", "pytorch_truncated.json.gz"),
    traced("without steps", "pytorch_no_steps.json"),
    traced("without events", "pytorch_empty.json"),
    traced("of a forward alone", "pytorch_forward.json"),
    traced("of another model", "pytorch.json", model="tiny"),
    traced("of other micro-batches", "pytorch.json", "--micro-batch-size 4"),
    traced("of sequences that are longer than the model's", "pytorch.json", "--seq-len 1024"),
    traced("of several models", "pytorch.json", model="tiny,demo"),
    traced("of micro-batches of several sizes", "pytorch.json", "--micro-batch-size 2,4"),
    traced("of experts", "pytorch.json", model="mixtral-tiny"),
    traced("against a profile that does not exist", "pytorch.json", "--against nothing"),
    traced("into the trace", "pytorch.json", "--out ./pytorch.json"),
    traced("into two files of one name", "pytorch.json", "--found ./p.json"),
    traced("and tables", "pytorch.json", "--import table_twice.csv --device h100"),
    case("calibrate: what was found, without a trace", "calibrate --model tiny --found f.json --out p.json"),

    case("compare with the beginning of an option", "compare predicted.json measured.json --cs a.csv"),
    case("plot with the beginning of an option", "plot timeline a.png trace.json --bat 1"),
    case("sample with the beginning of an option", "sample whole.safetensors --tok 5"),
    case("compare of one report", "compare predicted.json"),
    case("compare of reports of different plans", "compare predicted.json other_plan.json"),
    case("compare the wrong way round", "compare measured.json predicted.json"),
    case("compare with a report that does not exist", "compare predicted.json missing.json"),
    case("compare with a report cut short", "compare predicted.json report_truncated.json"),
    case("compare with a model", "compare predicted.json model.json"),
    case("compare into a CSV on a full disk", "compare predicted.json measured.json --csv /dev/full", FAILED),
    case("compare into one of its reports", "compare predicted.json measured.json --csv ./measured.json"),
    case("compare into two files of one name", "compare predicted.json measured.json --csv a.svg --plot a.svg"),
    case("plan of a model of a hub", "plan meta-llama/Llama-3-8B --gpus 8 --machine h100"),
    case("plan of a launch script without --from", "plan launch_family.sh --gpus 8 --machine h100"),
    case("plan on a machine in capitals", "plan tiny --gpus 8 --machine H100"),
    case("plan on a machine with more in its name", "plan tiny --gpus 8 --machine a100-80gb"),
    case("plan for torchtitan of a model that it has not", "plan mistral-7b --gpus 8 --machine h100 --launch torchtitan=new.toml"),
    case("plan of plans of torchtitan, of a model that it has not", "plan mistral-7b --gpus 8 --machine h100 --plans torchtitan"),
    case("simulate: a DeepSpeed configuration whose micro-batch is the trainer's",
         "simulate llama3-8b --from launch_auto.json --gpus 8 --machine h100 --seq-len 8192 --batch-size 8"),
    case("simulate: a DeepSpeed configuration that leaves all to the trainer",
         "simulate llama3-8b --from launch_all_auto.json --gpus 8 --machine h100 --seq-len 8192 --micro-batch-size 1"),
    case("compare of a report with a profiler's trace", "compare predicted.json pytorch.json"),
    case("compare of a real run's timeline with a profiler's trace", "compare skipped.json pytorch.json"),
    case("compare of a timeline cut short", "compare trace_truncated.json pytorch.json"),
    case("compare of a profiler's trace cut short", "compare timeline.json pytorch_truncated.json"),
    case("compare of a profiler's trace cut short, compressed", "compare timeline.json pytorch_truncated.json.gz"),
    case("compare of a profiler's trace without steps", "compare timeline.json pytorch_no_steps.json"),
    case("compare of a profiler's trace first", "compare pytorch.json timeline.json"),
    case("compare of a profiler's trace with a rank that is not there", "compare timeline.json pytorch.json --rank 2"),
    case("compare of a profiler's trace into a figure", "compare timeline.json pytorch.json --plot a.png"),
    case("compare of a profiler's trace with a limit", "compare timeline.json pytorch.json --max-worst-error 5"),
    case("compare of a profiler's trace and reports", "compare timeline.json pytorch.json predicted.json measured.json"),
    case("compare of a profiler's trace, merged into it", "compare timeline.json pytorch.json --merge ./pytorch.json"),
    case("compare of a profiler's trace, merged on a full disk", "compare timeline.json pytorch.json --merge /dev/full", FAILED),
    case("compare of reports, merged", "compare predicted.json measured.json --merge both.json"),
    case("compare of reports with a rank", "compare predicted.json measured.json --rank 0"),
    case("plot of a figure that does not exist", "plot portrait a.png measured.json"),
    case("report of nothing", "report out.html"),
    case("report of a file that does not exist", "report out.html missing.json"),
    case("report of a JSON of no kind", "report out.html launch_other.json"),
    case("report of a text", "report out.html text.txt"),
    case("report of a table with a line cut short", "report out.html cut.csv"),
    case("report in the place of what it reads", "report cut.csv.html cut.csv.html"),
    case("report into a folder that does not exist", "report nowhere/out.html cut.csv"),
    case("report into a folder that cannot be made", "report cut.csv/out cut.csv"),
    case("report into a file that is no folder", "report cut.csv missing.json"),
    simulate("a page with another suffix", "--html page.txt"),
    simulate("a page in a folder that does not exist", "--html nowhere/page.html"),
    sweep("a page with another suffix", "--html page"),
    plan("a page in the place of the report", "llama3-8b --gpus 8 --machine h100 --html page.html --report page.html"),
    case("plot with a wrong suffix", "plot memory a.jpeg measured.json"),
    case("plot into a folder that does not exist", "plot memory nowhere/a.png measured.json"),
    case("plot of a trace that does not exist", "plot timeline a.png missing.json"),
    case("plot of a device as a trace", "plot timeline a.png /dev/zero"),
    case("plot of a device as a sweep", "plot sweep-memory a.png /dev/zero"),
    case("plot of a report as a trace", "plot timeline a.png measured.json"),
    case("plot of a loss that does not exist", "plot loss a.png missing.csv"),
    case("plot into what it reads", "plot loss text.svg text.svg"),
    case("plot of a text as a loss", "plot loss a.png text.txt"),
    case("plot of a loss that is cut short", "plot loss a.png loss_truncated.csv"),
    case("plot of a loss that is not a number", "plot loss a.png loss_nan.csv"),
    case("plot of a trace that is cut short", "plot timeline a.png trace_truncated.json"),
    case("plot of an optimizer on a rank that there is not", "plot optimizer a.png skipped.json --rank 1"),
    case("plot of an optimizer in a batch that there is not", "plot optimizer a.png skipped.json --batch 9"),
    case("plot of a sweep cut short", "plot sweep-memory a.png sweep_truncated.csv"),
    case("plot of a loss as a sweep", "plot sweep-throughput a.png loss_nan.csv"),

    case("sample without a checkpoint", "sample"),
    case("sample of a checkpoint that does not exist", "sample missing.safetensors"),
    case("sample of a checkpoint cut short", "sample truncated.safetensors"),
    case("sample of a checkpoint whose header is cut short", "sample header.safetensors"),
    case("sample of a text", "sample text.txt"),
    case("sample of an empty file", "sample empty.txt"),
    case("sample of a folder", "sample folder"),
    case("sample of no number of tokens", "sample whole.safetensors --tokens many"),
    case("sample at a temperature below zero", "sample whole.safetensors --temperature -1"),
    case("sample of a text where tokens are no bytes", "sample hf_words --prompt text"),
    case("sample of tokens that are none", "sample hf_words --prompt-tokens 1,200"),
    case("sample of tokens with a word among them", "sample hf_words --prompt-tokens 1,word,3"),
    case("sample of two prompts", "sample hf_words --prompt-tokens 1 --prompt text"),
    case("sample of more likely tokens than there are", "sample hf_words --prompt-tokens 1 --top-k 201"),
    case("sample of a folder of which a part is missing", "sample hf_part"),
]


# ---- the files that the cases name ----

def write(folder, name, content):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def write_models(folder):
    model = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 32}
    variants = {
        "model": {}, "model_ascii": {"vocab_size": 128}, "model_heads": {"n_head": 5}, "model_absurd": {"n_layer": 10 ** 15},
        "model_untied": {"tie_word_embedding": False},
        "model_large": {"n_layer": 1000, "n_embd": 131072, "n_head": 64},
        "model_limits": {"n_layer": 10000, "n_embd": 131072, "n_head": 1024, "n_positions": 262144},
    }
    for name, changes in variants.items():
        write(folder, name + ".json", json.dumps({**model, **changes}, indent=1))
    llama = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
             "intermediate_size": 172, "max_position_embeddings": 64}
    qwen3_moe = {"model_type": "qwen3_moe", "num_key_value_heads": 2, "moe_intermediate_size": 32, "num_experts": 4,
                 "num_experts_per_tok": 2}
    variants = {
        "model_neox": {"model_type": "gpt_neox"},
        "model_mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 32},
        "model_qwen3": {"model_type": "qwen3", "num_key_value_heads": 2}, "model_window": {"sliding_window": 4096},
        "model_rope": {"rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}, "model_activation": {"hidden_act": "gelu"},
        "model_kv": {"num_key_value_heads": 3},
        "model_chosen": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5},
        "model_dense": {**qwen3_moe, "mlp_only_layers": [1]}, "model_first": {**qwen3_moe, "mlp_only_layers": [0]},
        "model_sparse": {**qwen3_moe, "decoder_sparse_step": 2},
        "model_deepseek": {"model_type": "deepseek_v3", "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                           "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "moe_intermediate_size": 32,
                           "n_routed_experts": 16, "num_experts_per_tok": 2, "topk_method": "greedy"},
    }
    for name, changes in variants.items():
        write(folder, name + ".json", json.dumps({**llama, **changes}, indent=1))
    del llama["model_type"]
    write(folder, "model_family.json", json.dumps(llama, indent=1))
    whole = json.dumps(model, indent=1)
    write(folder, "model_truncated.json", whole[:len(whole) // 2])
    write(folder, "model_malformed.json", whole.replace("}", ",}"))
    write(folder, "model_no_layers.json", whole.replace("n_layer", "n_layers"))
    write(folder, "empty.json", "")


def write_launches(folder):
    """What other tools are started with, with something wrong in each."""
    sizes = "--hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8"
    script = "#!/bin/bash\nARGS=(\n    %s\n    --vocab-size 256\n)\ntorchrun --nproc_per_node 8 pretrain_gpt.py \"${ARGS[@]}\" --bf16\n"
    for name, flags in {
            "unset": f"--num-layers $LAYERS {sizes}", "unknown": f"--num-layers 4 {sizes}\n    --hidden-layers-of-glass 3",
            "number": f"--num-layers 4 {sizes}\n    --tensor-model-parallel-size two",
            "recompute": f"--num-layers 4 {sizes} --recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
            "experts": f"--num-layers 4 {sizes} --num-experts 8 --expert-model-parallel-size 8", "family": f"--num-layers 4 {sizes} --swiglu",
            "heads": f"--num-layers 4 {sizes} --num-attention-heads 7", "gpus": f"--num-layers 4 {sizes} --pipeline-model-parallel-size 3"}.items():
        write(folder, f"launch_{name}.sh", script % flags)
    write(folder, "launch_auto.json", json.dumps({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": 8, "bf16": {"enabled": True},
                                                  "zero_optimization": {"stage": 2}}))
    write(folder, "launch_all_auto.json", json.dumps({"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto",
                                                      "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
                                                      "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 3}}))
    write(folder, "launch_vocabulary.sh", (script % f"--num-layers 4 {sizes}").replace("    --vocab-size 256\n", ""))
    job = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n'
    write(folder, "launch_other.toml", '[project]\nname = "a package"\n')
    write(folder, "launch_truncated.toml", job[:21])
    write(folder, "launch_twice.toml", job + "seq_len = 8192\n")
    write(folder, "launch_date.toml", job + "begun = 2024-12-01\n")
    write(folder, "launch_flavor.toml", job.replace("8B", "9B"))
    write(folder, "launch_key.toml", job + "[parallelism]\ntensor_parallel_degrees = 2\n")
    write(folder, "launch_deep.toml", "[model]\nflavor = " + "[" * 100000 + "\n")
    stages = '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_layers_per_stage = -1\n'
    write(folder, "launch_stages.toml", job + stages)
    for name, body in {"grows": "A=" + "x" * 9000 + "\n" + "B=$A\n" * 2000, "chunks": "A=(%s)\n" % ("word " * 3000),
                       "deep": "A=" + "${A:-" * 100000 + "\n", "sums": "A=$((" + "(" * 5000 + "1" + ")" * 5000 + "))\n",
                       "shells": "A='eval \"$A\"'\neval \"$A\"\n"}.items():
        write(folder, f"launch_{name}.sh", body + script % f"--num-layers 4 {sizes}")
    write(folder, "cut.csv", "gpus,seconds\n8,1.5\n16\n")
    write(folder, "cut.csv.html", "a,b\n1,2\n")
    write(folder, "launch_other.json", json.dumps({"scripts": {"start": "node ."}}))
    zero = {"train_batch_size": 16, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}}
    write(folder, "launch_nvme.json", json.dumps(zero, indent=1))
    write(folder, "launch_truncated.json", json.dumps(zero, indent=1)[:60])
    del zero["zero_optimization"]["offload_optimizer"]
    write(folder, "launch_zero.json", json.dumps(zero, indent=1))
    write(folder, "launch_other.yaml", "services:\n  web: {}\n")
    write(folder, "launch_malformed.yaml", "distributed_type: FSDP\nfsdp_config: [1, 2\n")


def write_data(folder):
    text.write(os.path.join(folder, "text.txt"))
    write(folder, "text.svg", "step")
    write(folder, "empty.txt", "")
    write(folder, "short.txt", "a text of 24 characters.")
    tokens = struct.pack("<4000H", *[i % 200 for i in range(4000)])
    header = struct.pack("<256i", 20240520, 1, 4000, *[0] * 253)
    write(folder, "odd.bin", tokens[:-1])
    write(folder, "truncated.bin", header + tokens[:-100])
    write(folder, "header.bin", header[:500])
    write(folder, "magic.bin", struct.pack("<256i", 20240801, 7, 2000, *[0] * 253) + tokens)
    write(folder, "nan.bin", struct.pack("<2000f", *[float("nan")] * 2000))
    write(folder, "floats.bin", struct.pack("<2000f", *[i / 7 for i in range(2000)]))
    write(folder, "wide.bin", struct.pack("<2000i", *[i % 200 for i in range(2000)]))
    write(folder, "latin.txt", "na\u00efve " * 400)
    write(folder, "beyond.bin", tokens + struct.pack("<H", 256) + tokens)


TABLE = "gpus,tp,pp,dp,batch,micro_batch,layers,hidden,heads,seq,batch_seconds,recompute,schedule,gpu"
ROW = "8,2,2,2,16,1,12,1024,16,1024,0.5,none,1f1b,A100-80GB"


def write_tables(folder):
    """Tables of measured runs, each with one thing wrong."""
    def table(name, *lines):
        write(folder, f"table_{name}.csv", "".join(line + "\n" for line in lines))
    table("comments", "# measured", "")
    table("no_rows", TABLE)
    table("no_seq", TABLE.replace("seq,", ""), ROW)
    table("no_figure", TABLE.replace("batch_seconds", "note"), ROW)
    table("two_figures", TABLE.replace("recompute", "measured"), ROW)
    table("two_units", TABLE.replace("recompute", "unit"), ROW)
    table("twice", TABLE.replace("recompute", "tp"), ROW)
    table("cells", "# measured", TABLE, ROW, ROW + ",1")
    table("word", TABLE, ROW.replace("16,1,12", "16,one,12"))
    table("zero", TABLE, ROW.replace("0.5", "0"))
    table("quote", TABLE, ROW.replace("none", '"none'))
    table("unit", TABLE.replace("batch_seconds", "measured").replace("gpu,", "gpu,unit").replace("schedule", "unit"),
          ROW.replace("1f1b", "Tflop/s"))
    table("grid", TABLE, ROW.replace("8,2,2,2", "8,2,2,4"))
    table("heads", TABLE, ROW.replace("1024,16,1024", "1024,15,1024"))
    table("recompute", TABLE, ROW.replace("none", "some"))
    table("schedule", TABLE, ROW.replace("1f1b", "2f2b"))
    table("gpu", TABLE, ROW.replace("A100-80GB", "B200"))
    table("misspelt", TABLE.replace("recompute", "recomputation"), ROW)
    table("own", TABLE.replace("gpu", "colour").replace("colours", "gpus"), ROW)
    table("layers", TABLE, ROW.replace(",12,", ",1000000000,"))
    table("vocab", TABLE.replace("gpu", "vocab").replace("vocabs", "gpus"), ROW.replace("A100-80GB", "1000000000"))
    table("ranks", TABLE, ROW.replace("8,2,2,2", ",".join(["1000000000"] * 4)))
    table("product", TABLE, ROW.replace("8,2,2,2", ",".join(["1"] + ["1048576"] * 3)))
    table("gpus", TABLE, ROW.replace("8,2,2,2,16", "1048576,1,1,1048576,1048576"))
    for name, plan in {"help": "--help", "over": "--pp 4 --seq-len 9", "model": "tiny", "flag": "--presicion bf16"}.items():
        table("plan_" + name, TABLE + ",plan", f"{ROW},{plan}")


    table("plan_zero", TABLE + ",plan,zero", f"{ROW},--zero 3,1")
    preset = ("preset,gpus,tp,pp,dp,batch,micro_batch,seq,measured,unit,gpu,platform,cp,zero,shard_replicas,layers",
              "llama-tiny,8,1,1,8,16,1,64,0.5,batch_seconds,A100-80GB,,,3,,")
    table("preset_layers", preset[0], preset[1] + "2")
    table("preset_none", preset[0], preset[1].replace("llama-tiny", "") + "2")
    table("preset_unknown", preset[0], preset[1].replace("llama-tiny", "llama-4"))
    table("preset_flops", preset[0], preset[1].replace("batch_seconds", "tflops_per_gpu"))
    table("preset_cp", preset[0], preset[1].replace(",,,3", ",,two,1"))
    table("preset_groups", preset[0], preset[1].replace("3,,", "3,3,"))
    table("preset_platform", preset[0], preset[1].replace("80GB,", "80GB,atlantis"))


def write_profiles(folder):
    profile = json.loads(read(TESTS, "fixtures", "profile_60_180.json"))
    kernels = profile["loads"][0]["kernels"]
    whole = json.dumps(profile, indent=1)
    write(folder, "profile_fp32.json", whole)
    write(folder, "profile_truncated.json", whole[:len(whole) // 2])
    negative = json.loads(whole)
    negative["loads"][0]["kernels"]["matmul"]["model"]["overhead_seconds"] = -1
    write(folder, "profile_negative.json", json.dumps(negative, indent=1))
    for name, damage in {"misspelt": {"tile_size": 128}, "zero_rate": {"flops_per_second": 0},
                         "efficiency": {"efficiency": 80}, "tile": {"tile_m": 1.5},
                         "slow": {"flops_per_second": 1e-300}, "endless": {"overhead_seconds": 1e300},
                         "before": None}.items():
        variant = json.loads(whole)
        variant["loads"][0]["kernels"]["matmul"] = {"model": damage} if damage is not None else {"fit": {"overhead_seconds": 0.0}}
        write(folder, f"profile_{name}.json", json.dumps(variant, indent=1))
    write(folder, "profile_member.json", json.dumps({**profile, "fited_on": {}}, indent=1))
    load = {**profile["loads"][0], "line": {}}
    write(folder, "profile_load.json", json.dumps({**profile, "loads": [load]}, indent=1))
    del kernels["softmax"]
    write(folder, "profile_kernel.json", json.dumps(profile, indent=1))
    kernels["softmax"] = {"points": [{"batch": 1, "m": 1, "n": 1, "k": 0, "seconds": 1e-3, "p10": 1e-3, "p90": 1e-3,
                                      "samples": 9}]}
    write(folder, "profile_points.json", json.dumps(profile, indent=1))
    profile["measured"] = True
    write(folder, "profile_measured_points.json", json.dumps(profile, indent=1))
    del kernels["softmax"]
    write(folder, "profile_measured.json", json.dumps(profile, indent=1))
    write(folder, "profile_old.json", json.dumps({**json.loads(whole), "element_bytes": 4}, indent=1))
    write_offloading_profiles(folder)


def write_offloading_profiles(folder):
    """Profiles of a machine that offloads, each without one of the lines that this needs."""
    profile = json.loads(read(os.path.dirname(TESTS), "calibrate", "profiles", "v100-datasheet.json"))
    lines = {name: {"fit": {"latency_seconds": 1e-5, "seconds_per_byte": 1e-10}} for name in
             ("copy", "copy_back", "message", "fetch", "offloaded_update", "write_back")}
    for missing in ("fetch", "offloaded_update", "write_back"):
        profile["loads"][0]["lines"] = {name: line for name, line in lines.items() if name != missing}
        write(folder, f"profile_no_{missing}.json", json.dumps(profile, indent=1))


def write_platforms(folder):
    platform = read(os.path.dirname(TESTS), "sim", "platforms", "generic.json")
    source = {"source": "made up"}
    variants = {
        "one_byte": {"host_memory": {"value": 1, "unit": "B", **source}},
        "negative": {"host_memory": {"value": -512, "unit": "GB", **source}},
        "huge": {"host_memory": {"value": 1e300, "unit": "GB", **source}},
        "no_sockets": {"sockets": {"value": 0, "unit": "count", **source}},
        "half_socket": {"sockets": {"value": 0.5, "unit": "count", **source}},
        "three_sockets": {"sockets": {"value": 3, "unit": "count", **source}},
        "no_source": {"socket_link": {"value": 64, "unit": "GB/s"},
                      "socket_link_latency": {"value": 1, "unit": "us", **source}},
        "no_latency": {"socket_link": {"value": 64, "unit": "GB/s", **source}},
        "unit": {"host_memory_bandwidth": {"value": 200, "unit": "GB", **source}},
        "no_unit": {"host_memory_bandwidth": {"value": 200, **source}},
        "number": {"host_memory_bandwidth": 200},
        "no_bandwidth": {"nic": {"value": 0, "unit": "GB/s", **source}},
        "endless_bandwidth": {"nic": {"value": 1e305, "unit": "GB/s", **source}},
        "long": {"nic_latency": {"value": 1e308, "unit": "s", **source}},
        "efficiency": {"collectives": {"library": "nccl", "efficiency": {"value": 5, "unit": "ratio", **source}}},
        "torus": {"fabric": {"kind": "torus", "shape": [1000000] * 4, "link": {"value": 1, "unit": "GB/s"}, **source}},
        "routers": {"fabric": {"kind": "dragonfly", **{count: {"value": 1000, "unit": "count"} for count in
                                                       ("groups", "routers", "router_nodes")},
                               "link": {"value": 1, "unit": "GB/s"}, "global_link": {"value": 1, "unit": "GB/s"}, **source}},
        "groups": {"groups": [3]},
        "fabric": {"fabric": {"kind": "hypercube", **source}},
        "no_link": {"fabric": {"kind": "torus", "shape": [4, 4, 4], **source}},
        "misspelt": {"socket": {"value": 2, "unit": "count", **source}},
    }
    for name, changes in variants.items():
        write(folder, f"platform_{name}.json", json.dumps({**json.loads(platform), **changes}, indent=1))
    write(folder, "platform_truncated.json", platform[:len(platform) // 2])
    write(folder, "platform_malformed.json", '{\n "kind": "platform",\n "name": broken\n}\n')
    write(folder, "platform.xml", "<?xml version='1.0'?>\n<platfrm/>\n")


def write_weights(folder, whole):
    """Folders as transformers saves them, from a checkpoint of tiny, each but one wrong in its way."""
    metadata, weights = tensors.read(os.path.join(folder, whole))
    config = json.loads(metadata["config"])
    names = list(weights)
    half = names[:len(names) // 2]
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]

    def save(name, weights=weights, **changes):
        os.mkdir(os.path.join(folder, name))
        write(folder, f"{name}/config.json", json.dumps({**config, **changes}))
        tensors.write(os.path.join(folder, name, "model.safetensors"), weights, {"format": "pt"})

    def save_parts(name, **where):
        """`where`: files that the index names for some tensors, with _ for a point."""
        os.mkdir(os.path.join(folder, name))
        for file, part in zip(files, (half, names[len(half):])):
            tensors.write(os.path.join(folder, name, file), {key: weights[key] for key in part})
        index = {key: files[key not in half] for key in names}
        index.update({key: where[key.replace(".", "_")] for key in names if key.replace(".", "_") in where})
        write(folder, f"{name}/model.safetensors.index.json", json.dumps({"weight_map": index}, indent=1))

    def changed(name, change):
        return {**weights, name: change(*weights[name])}

    fc, last = "transformer.h.1.mlp.c_fc.weight", "transformer.ln_f.bias"
    save("hf_whole")
    save("hf_shape", changed(fc, lambda dtype, shape, elements: (dtype, shape[::-1], elements)))
    save("hf_integers", changed(fc, lambda dtype, shape, elements: ("I32", shape, elements)))
    save("hf_nan", changed(last, lambda dtype, shape, elements: (dtype, shape, elements[:-8] + b"\0\0\xc0\x7f" + elements[-4:])))
    save("hf_missing", {key: weights[key] for key in names if key != fc})
    save("hf_extra", {**weights, "transformer.h.1.adapter.weight": weights[last]})
    save("hf_heads", n_head=2)
    save("hf_layers", n_layer=config["n_layer"] + 1)
    save("hf_mamba", model_type="mamba")
    save("hf_words", changed("transformer.wte.weight", lambda dtype, shape, elements:
                             (dtype, (200, shape[1]), elements[:800 * shape[1]])), vocab_size=200)
    save_parts("hf_cut")
    write(folder, f"hf_cut/{files[1]}", read(folder, f"hf_cut/{files[1]}")[:-100])
    save_parts("hf_part")
    os.unlink(os.path.join(folder, "hf_part", files[1]))
    save_parts("hf_outside", transformer_ln_f_bias="../whole.safetensors")
    save_parts("hf_index", transformer_ln_f_bias=files[0])
    save_parts("hf_index_cut")
    write(folder, "hf_index_cut/model.safetensors.index.json", read(folder, "hf_index_cut/model.safetensors.index.json")[:300])
    save_parts("hf_twice")
    tensors.write(os.path.join(folder, "hf_twice", files[0]), {key: weights[key] for key in half + [last]})
    for name in ("hf_bare", "hf_pickled", "hf_header", "hf_nest", "hf_shared", "notes"):
        os.mkdir(os.path.join(folder, name))
    tensors.write(os.path.join(folder, "hf_bare", "model.safetensors"), weights)
    write(folder, "hf_pickled/pytorch_model.bin", b"PK\3\4")
    write(folder, "hf_header/model.safetensors", struct.pack("<Q", 1 << 40) + b"{}")
    nest = b'{"a":' + b"[" * 100000
    write(folder, "hf_nest/model.safetensors", struct.pack("<Q", len(nest)) + nest)
    shared = json.dumps({f"t{i}": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for i in range(3)}).encode()
    write(folder, "hf_shared/model.safetensors", struct.pack("<Q", len(shared)) + shared + bytes(8))
    write(folder, "notes/notes.txt", "not a checkpoint")


def write_results(folder):
    """Reports and tables from the fixtures, and a trace and checkpoints that ranvier itself wrote."""
    for name, fixture in (("predicted", "predicted-1"), ("measured", "measured-1"), ("other_plan", "measured-2")):
        write(folder, name + ".json", read(TESTS, "fixtures", "plot", fixture + ".json"))
    write(folder, "report_truncated.json", read(folder, "measured.json")[:500])
    table = read(TESTS, "fixtures", "plot", "sweep.csv")
    write(folder, "sweep_truncated.csv", table[:len(table) // 2 - 10])
    columns = "step,train_loss,val_loss,lr,tokens_per_second,batch_seconds\n"
    write(folder, "loss_truncated.csv", columns + "1,5.5,,0.001,1000,0.1\n2")
    write(folder, "loss_nan.csv", columns + "1,5.5,,0.001,1000,0.1\n2,nan,,0.001,1000,0.1\n")
    trace, whole = os.path.join(folder, "skipped.json"), os.path.join(folder, "whole.safetensors")
    predicted = "simulate gpt2-124m --machine h100 --gpus 2 --dp 2 --micro-batch-size 1 --batch-size 2 --trace timeline.json"
    for line in (f"train tiny {TRAIN} {MIXED} --steps 1 --inject-overflow 1 --trace {trace}", f"train tiny {TRAIN} --steps 0 --checkpoint {whole}",
                 predicted):
        status, _, said = ranvier.run(line.split(), folder=folder)
        if status != 0:
            raise SystemExit(f"nothing to cut: {said}")
    events = read(trace)
    write(folder, "trace_truncated.json", events[:events.index(b'"name":"forward') + len('"name":"forw')])
    write_weights(folder, "whole.safetensors")
    checkpoint = read(whole)
    write(folder, "truncated.safetensors", checkpoint[:-4])
    write(folder, "header.safetensors", checkpoint[:100])


def write_traces(folder):
    """PyTorch's, each with one thing wrong."""
    whole = gzip.decompress(read(TESTS, "fixtures", "trace_gpt2.json.gz"))
    trace = json.loads(whole)
    write(folder, "pytorch_model.json", read(TESTS, "fixtures", "trace_gpt2_model.json"))
    write(folder, "pytorch.json", whole)
    write(folder, "pytorch_truncated.json", whole[:len(whole) // 2])
    write(folder, "pytorch_truncated.json.gz", read(TESTS, "fixtures", "trace_gpt2.json.gz")[:20000])

    def save(name, events):
        write(folder, f"pytorch_{name}.json", json.dumps({**trace, "traceEvents": events}))
    events = trace["traceEvents"]
    save("no_shapes", [{**e, "args": {}} for e in events])
    save("gpu", [{**e, "args": {}} for e in events] +
         [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": events[0]["ts"] + i, "dur": 1, "tid": 7} for i in range(3)])
    save("no_steps", [e for e in events if not e["name"].startswith("ProfilerStep#")])
    save("empty", [])
    backward = min(e["ts"] for e in events if e["name"].startswith("autograd::engine"))
    save("forward", [e for e in events if e["ts"] < backward])


def write_inputs(folder):
    os.mkdir(os.path.join(folder, "folder"))
    os.mkdir(os.path.join(folder, "temporary"))
    write_models(folder)
    write_launches(folder)
    write_data(folder)
    write_tables(folder)
    write_profiles(folder)
    write_platforms(folder)
    write_traces(folder)
    write_results(folder)


# ---- a case ----

def snapshot(folder):
    """Every file and folder below, with what is in it."""
    found = {}
    for where, folders, files in os.walk(folder):
        where = os.path.relpath(where, folder)
        found.update((os.path.join(where, name), "folder") for name in folders)
        found.update((os.path.join(where, name), hashlib.sha1(read(folder, where, name)).hexdigest()) for name in files)
    return found


class Folders:
    """Copies of the inputs, one for each case that runs. Where a case has changed nothing the next one finds what it expects."""

    def __init__(self, inputs):
        self.inputs, self.before = inputs, snapshot(inputs)
        self.free = queue.SimpleQueue()

    @contextlib.contextmanager
    def borrowed(self):
        """A folder, and a function that says what the case has changed in it."""
        try:
            folder = self.free.get_nowait()
        except queue.Empty:
            folder = tempfile.mkdtemp(dir=os.path.dirname(self.inputs))
            shutil.copytree(self.inputs, folder, dirs_exist_ok=True)
        changes = []

        def changed():
            changes.extend(sorted(set(self.before.items()) ^ set(snapshot(folder).items())))
            return changes

        yield folder, changed
        if not changes:
            self.free.put(folder)


def attempt(folders, line, ranks):
    """Runs in a folder of its own; returns exit status, lines that ranvier said, the lines around them, and what is
    wrong besides."""
    with folders.borrowed() as (folder, changed):
        variables = {} if ranks else {"TMPDIR": os.path.join(folder, "temporary")}
        arguments = shlex.split(line.replace("TRAIN", TRAIN).replace("SIMULATE", SIMULATE).replace("SWEEP", SWEEP))
        if ranks and line.startswith("train") and "--pp" not in line:
            arguments[2:2] = ["--dp", str(ranks)]
        try:
            status, _, said = ranvier.run(arguments, ranks, folder, LIMIT_SECONDS, RANVIER_DEVICE_CUDA="nowhere/cuda.so",
                                          **variables)
        except subprocess.TimeoutExpired:
            changed()
            return None, [], [], f"it did not end in {LIMIT_SECONDS} s"
        changes = changed()
    lines = [l for l in said.splitlines() if re.match(r"ranvier( \w+)?: ", l)]
    others = [l for l in said.splitlines() if l and not l.startswith("ranvier") and not l.startswith("step ")]
    wrong = []
    if changes:
        wrong.append(f"files changed: {changes}")
    if len(lines) != 1:
        wrong.append(f"{len(lines)} sentences, 1 was expected: {said}")
    return status, lines, others, "; ".join(wrong)


def plain(said, line):
    """Without what depends on the machine or does not matter: where the tree lies, how much memory there is, how fast
    numbers grow, how long a header is."""
    said = said.replace(os.path.dirname(TESTS) + "/", "")
    said = re.sub(r"the loss of step [0-9]+ is (not a number|infinite)", "the loss of step N is not finite", said)
    said = re.sub(r"a header of [0-9]+ bytes", "a header of N bytes", said)
    if line.startswith("train"):  # which has this machine's memory
        said = re.sub(r"\b(has|have) +[0-9.]+ [GT]iB", r"\1 N GiB", said)
    return said


def breakdown(what, line, said):
    """The lines before the sentence as the golden file has them, and what is wrong with them. The changes that would
    help are left out: which are cheapest depends on prices (tests/unit/test_capacity.c looks at them)."""
    if what not in BREAKDOWNS:
        return [], f"more than a sentence: {said}" if said else ""
    changes = []
    for i in [i for i, l in enumerate(said) if l.startswith("it would fit with")]:
        changes = [l for l in said[i + 1:] if l.startswith("  ")]
        said = said[:i + 1] + [l for l in said[i + 1:] if not l.startswith("  ")]
        if len(changes) < 3 or not all(re.search(r"  [0-9.]+ ([KMGTP]i)?B", l) for l in changes[1:]):
            return said, f"no table of changes: {changes}"
    needs = [l for l in said if re.match(r"  needs +[0-9.]+ ([KMGTP]i)?B", l)]
    return [plain(l, line) for l in said], "" if len(needs) == 1 else f"no table of what is needed: {said}"


def examine(folders, what, line, status, rank_counts):
    """The lines of the golden file for this case, and what is wrong with it."""
    golden = [f"# {what}"]
    wrong = []
    first = None
    for ranks in rank_counts:
        found, lines, others, complaint = attempt(folders, line, ranks)
        if complaint:
            wrong.append(complaint)
        explained = []
        if not ranks:  # mpirun adds lines of its own
            explained, complaint = breakdown(what, line, others)
            wrong += [complaint] if complaint else []
        if found != status:
            wrong.append(f"exit status {found}, {status} was expected: {lines}")
        sentence = plain(lines[0], line) if lines else ""
        if sentence != first:
            golden += [f"$ {f'mpirun -n {ranks} ' if ranks else ''}ranvier {line}", *explained, sentence,
                       f"status {found}"]
        first = sentence
    return golden, "; ".join(wrong)


def golden_cases():
    """The golden file as {name: lines}."""
    if not os.path.exists(GOLDEN):
        return {}
    with open(GOLDEN) as file:
        blocks = file.read().strip().split("\n\n")
    return {block.split("\n")[0]: block.split("\n") for block in blocks}


def chosen_cases():
    """Every other one; under the sanitizers, which the same CI runs, the others."""
    if os.environ.get("GOLDEN") or ranvier.EVERY_CASE:
        return CASES
    return CASES[ranvier.SANITIZED::2]


def check_cases(tap):
    cases = chosen_cases()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(8) as pool:
        inputs = os.path.join(folder, "inputs")
        os.mkdir(inputs)
        write_inputs(inputs)
        folders = Folders(inputs)
        results = list(pool.map(lambda row: examine(folders, *row), cases))
    expected = golden_cases()
    if os.environ.get("GOLDEN"):
        with open(GOLDEN, "w") as file:
            head = f"What wrong input is answered with.\nTRAIN: {TRAIN}\nSIMULATE: {SIMULATE}\nSWEEP: {SWEEP}"
            file.write("\n\n".join([head] + ["\n".join(golden) for golden, _ in results]) + "\n")
        expected = golden_cases()
    for (what, _, status, _), (golden, wrong) in zip(cases, results):
        known = expected.get(golden[0])
        if known != golden:
            wrong += f"; the golden file has {known}, found {golden}"
        tap.ok(not wrong, f"{what}: status {status}, one sentence, nothing left", wrong)


# ---- jobs that do not come to their end ----

def start_long_job(folder, options, temporary):
    """Two ranks in training; returns mpirun once the log has some steps."""
    text.write(os.path.join(folder, "text.txt"))
    # A rank that mpirun ends has so long until it is killed outright; a second is too little on a busy machine.
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_odls_base_sigkill_timeout="5", TMPDIR=temporary)  # of its own, as two mpiruns cannot make one at a time
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", os.path.join(ranvier.BIN, "ranvier"),
               "train", "tiny", "--data", "text.txt", "--micro-batch-size", "1", "--batch-size", "4", *options.split(),
               "--steps", "5000000", "--log", "log.csv", "--report", "report.json", "--checkpoint", "model.safetensors",
               "--trace", "trace.json"]
    job = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline and job.poll() is None:
        for log in glob.glob(os.path.join(folder, "log.csv")):
            if read(log).count(b"\n") > 4:
                return job
        time.sleep(0.05)
    job.kill()
    raise SystemExit("the job that was to be ended has not begun to train")


def ranks_of(job):
    """Process ids of the ranks, by rank: children of this mpirun only."""
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
        children = [int(pid) for pid in file.read().split()]
    ranks = {}
    for pid in children:
        environment = read("/proc", str(pid), "environ").split(b"\0")
        rank = [v.split(b"=")[1] for v in environment if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank:
            ranks[int(rank[0])] = pid
    return ranks


def alive(pid):
    """Whether a rank still runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end_job(training, what, end, options="--pp 2"):
    """What is to be looked at, of a job that is ended: (whether it holds, a sentence, what was found)."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary:
        with training:
            job = start_long_job(folder, options, temporary)
            ranks = ranks_of(job)
            end(job, ranks)
        try:
            status = job.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
            job.kill()
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline and any(alive(pid) for pid in ranks.values()):
            time.sleep(0.1)
        left = sorted(set(os.listdir(folder)) - {"text.txt"})
        return [(sorted(ranks) == [0, 1], f"{what}: there are two ranks, in training", ranks),
                (status not in (0, None), f"{what}: the job ends within {END_SECONDS} s, and not with status 0", status),
                (not any(alive(pid) for pid in ranks.values()), f"{what}: no rank lives on", ranks),
                (left == ["log.csv"] and read(folder, "log.csv").endswith(b"\n"), f"{what}: no file is left but the log, whose rows are whole", left)]


def check_ends(tap):
    kill = lambda rank: lambda job, ranks: os.kill(ranks[rank], signal.SIGKILL)
    offloaded = f"{MIXED} --bucket-params 3000 --host-link 50MB/s"  # most of a step is copies
    jobs = [("rank 1 is killed as it offloads", kill(1), f"--dp 2 {offloaded}"),
            ("rank 0 is killed as it offloads", kill(0), f"--pp 2 {offloaded} --offload-activations --schedule gpipe --batch-size 8"),
            ("rank 1 is killed", kill(1)),
            ("rank 0 is killed", kill(0)),
            ("mpirun gets SIGTERM", lambda job, ranks: job.send_signal(signal.SIGTERM)),
            ("mpirun gets SIGINT", lambda job, ranks: job.send_signal(signal.SIGINT))]
    # One trains at a time, but the next while mpirun still waits, which is most of the time of each.
    training = threading.Lock()
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(end_job, training, *job) for job in jobs]:
            for found in job.result():
                tap.ok(*found)


def main():
    tap = ranvier.Tap()
    check_cases(tap)
    check_ends(tap)
    tap.end()


if __name__ == "__main__":
    main()
