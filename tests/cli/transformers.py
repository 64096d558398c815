#!/usr/bin/python3
"""Models of Hugging Face's transformers, in and out: random ones that save_pretrained wrote are trained by both, with equal
losses and gradients, and what ranvier writes gives in from_pretrained the logits that ranvier has.

Without transformers it says so and passes; `make test-transformers` installs it, beside Debian's PyTorch, and runs this."""
import inspect
import os
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import ranvier
import text

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
try:
    import pytorch  # ours
    import torch
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != FOLDER]  # in which this file has that name
    import transformers
except ImportError as missing:
    print(f"ok 1 - transformers # SKIP {missing}: make test-transformers installs it\n1..1")
    raise SystemExit(0)

GPT2 = {"n_layer": 3, "n_embd": 48, "n_head": 4}
LLAMA = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 104, "rope_theta": 500.0, "rms_norm_eps": 1e-5}
# Without the loss that balances experts, which transformers makes of all layers' tokens at once and we of each layer's.
MIXTRAL = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": False}
# A half of a head turns, an even number of its columns.
NEMOTRON = {**{key: value for key, value in LLAMA.items() if key != "rms_norm_eps"}, "head_dim": 12}
SIZES = {"gpt2": ("n_positions", GPT2), "llama": ("max_position_embeddings", LLAMA), "mistral": ("max_position_embeddings", LLAMA),
         "mixtral": ("max_position_embeddings", MIXTRAL), "nemotron": ("max_position_embeddings", NEMOTRON)}
SHARDED = {"max_shard_size": "100KB"}
LOSSES, GRADIENTS, LOGITS = 1e-5, 1e-4, 1e-4

# Name, family, tied, arguments of save_pretrained, what is done to the model before, grid of ranvier, ranks.
CASES = [
    ("one file", "gpt2", True, {}, None, [], 0),
    ("parts with an index, 2 stages", "gpt2", True, SHARDED, None, ["--pp", 2], 2),
    ("untied, 2 shards", "gpt2", False, SHARDED, None, ["--tp", 2], 2),
    ("fp16", "gpt2", True, {}, lambda model: model.half(), ["--pp", 3], 3),
    ("without the head and its prefix", "gpt2", True, {}, lambda model: model.transformer, [], 0),
    ("one file", "llama", False, {}, None, [], 0),
    ("parts with an index, 2 stages x 2 shards", "llama", False, SHARDED, None, ["--pp", 2, "--tp", 2], 4),
    ("tied, 2 shards", "llama", True, SHARDED, None, ["--tp", 2], 2),
    ("bf16, 2 replicas", "llama", False, SHARDED, lambda model: model.bfloat16(), ["--dp", 2], 2),
    ("one file", "mistral", False, {}, None, [], 0),
    ("parts with an index, 2 stages x 2 shards", "mistral", False, SHARDED, None, ["--pp", 2, "--tp", 2], 4),
    ("one file", "mixtral", False, {}, None, [], 0),
    ("tied, 2 stages x 2 shards", "mixtral", True, {}, None, ["--pp", 2, "--tp", 2], 4),
    ("parts with an index, experts over 4 replicas", "mixtral", False, SHARDED, None, ["--dp", 4, "--ep", 4], 4),
    ("bf16 parts, 2 stages x 2 replicas x 2 shards, experts over 2", "mixtral", False, SHARDED, lambda model: model.bfloat16(),
     ["--pp", 2, "--dp", 2, "--tp", 2, "--ep", 2, "--sequence-parallel"], 8),
]
# Nemotrons are of newer versions, which want a PyTorch whose LayerNorms may be without biases.
if hasattr(transformers, "NemotronConfig") and "bias" in inspect.signature(torch.nn.LayerNorm).parameters:
    CASES += [
        ("one file", "nemotron", False, {}, None, [], 0),
        ("parts with an index, 2 stages x 2 shards", "nemotron", False, SHARDED, None, ["--pp", 2, "--tp", 2], 4),
    ]


def save(folder, family, tied, how, change):
    """A model of random weights, larger than transformers' own, so that nothing in it is nearly linear."""
    positions, sizes = SIZES[family]
    config = transformers.AutoConfig.for_model(family, vocab_size=pytorch.VOCABULARY, tie_word_embeddings=tied,
                                               initializer_range=0.1, **{positions: pytorch.LENGTH}, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() == 1:
                tensor += 0.1 * torch.randn_like(tensor)
    (change(model) if change else model).save_pretrained(folder, **how)


def load(folder):
    """In fp32, without dropout; nothing may be missing or left over."""
    model, about = transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32,
                                                                     output_loading_info=True)
    wrong = [name for names in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in about[names]]
    return model.eval(), [name for name in wrong if name != "lm_head.weight" or not model.config.tie_word_embeddings]


def forward(model):
    return lambda weights, inputs, targets: pytorch.mean_loss(model(inputs).logits, targets)


def check_losses(tap, name, folder, grid, ranks):
    saved, data, log, out = (os.path.join(folder, file) for file in ("saved", "text.txt", "log.csv", "trained"))
    status, _, err = ranvier.run(["train", "--init", saved, *pytorch.data_flags(data), *grid,
                                  *pytorch.training_flags(*pytorch.ADAM), "--log", log, "--checkpoint", out], ranks)
    if status:
        return tap.ok(False, f"{name}: ranvier trains", err)
    model, _ = load(saved)
    theirs = pytorch.torch_losses(forward(model), dict(model.named_parameters()), pytorch.training_tokens(data),
                                  *pytorch.ADAM, [])
    ours = ranvier.losses(log)
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"# {name}: loss {theirs[0]:.4f} to {theirs[-1]:.4f}, largest relative difference {worst:.2g}", flush=True)
    tap.ok(len(ours) == len(theirs) and worst <= LOSSES,
           f"{name}: {len(theirs)} losses equal those of transformers within {LOSSES:g}", f"{ours}\n{theirs}")


def check_gradients(tap, name, folder, grid, ranks):
    saved, data, out = (os.path.join(folder, file) for file in ("saved", "text.txt", "step"))
    status, _, err = ranvier.run(["train", "--init", saved, *pytorch.data_flags(data), *grid, "--steps", 1,
                                  *pytorch.GRADIENT_FLAGS, "--checkpoint", out], ranks)
    if status:
        return tap.ok(False, f"{name}: ranvier takes a step", err)
    before, (after, _) = load(saved)[0], load(out)
    forward(before)({}, *pytorch.batch(pytorch.training_tokens(data), 0)).backward()
    stepped = dict(after.named_parameters())
    worst, of = max((float((pytorch.gradient(tensor, stepped[key]) - tensor.grad.double()).norm() / tensor.grad.norm()), key)
                    for key, tensor in before.named_parameters())
    print(f"# {name}: largest difference of a gradient {worst:.2g} of its norm, of {of}", flush=True)
    tap.ok(worst <= GRADIENTS, f"{name}: the gradients of {len(stepped)} tensors equal autograd's within {GRADIENTS:g}",
           f"{of}: {worst}")


def check_logits(tap, name, folder, which):
    """Of the token behind a prompt."""
    prompt = [5, 200, 31, 7, 99, 0, 255, 64, 31, 12]
    path = os.path.join(folder, which)
    model, wrong = load(path)
    with torch.no_grad():
        theirs = model(torch.tensor([prompt])).logits[0, -1]
    status, out, err = ranvier.run(["sample", path, "--prompt-tokens", ",".join(map(str, prompt)), "--logits"])
    ours = torch.tensor([float(line) for line in out.split()])
    worst = float((ours - theirs).abs().max()) if status == 0 else err
    print(f"# {name}, {which}: largest difference of a logit {worst}, of logits up to {float(theirs.abs().max()):.3g}")
    tap.ok(not wrong, f"{name}, {which}: from_pretrained finds every tensor, and no other", wrong)
    tap.ok(status == 0 and worst <= LOGITS, f"{name}, {which}: {len(theirs)} logits equal those of transformers within "
           f"{LOGITS:g}", worst)


def main():
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    tap = ranvier.Tap()
    for name, family, tied, how, change, grid, ranks in CASES:
        name = f"{family}, {name}"
        with tempfile.TemporaryDirectory() as folder:
            text.write(os.path.join(folder, "text.txt"))
            save(os.path.join(folder, "saved"), family, tied, how, change)
            check_losses(tap, name, folder, grid, ranks)
            check_gradients(tap, name, folder, grid, ranks)
            for which in ("saved", "trained"):
                check_logits(tap, name, folder, which)
    tap.end()


if __name__ == "__main__":
    main()
