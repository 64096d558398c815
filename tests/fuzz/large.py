#!/usr/bin/python3
"""Writes inputs that are too large to lie in a corpus, into a folder, as TARGET.NAME: files of which a reader once took minutes or
all memory, because they have many of what files have a few, or are deep. Each is text of less than 4 MB."""
import os
import sys


def keys(count, form):
    return ",".join(form % i for i in range(count))


def table(head, count, form):
    return head + "\n" + "".join(form % i + "\n" for i in range(count))


def events(*lists):
    return '{"traceEvents":[' + ",".join(lists) + "]}"


STEP = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","tid":1,"ts":0,"dur":10000}'
OPERATOR = '{"ph":"X","cat":"cpu_op","name":"a","tid":1,"ts":%d,"dur":1}'
COLLECTIVES = "# source: x\noperation,gpus,nodes,bytes,seconds"
LARGE = {
    "model.members": '{"model_type":"gpt2",' + keys(250000, '"k%d":1') + "}",
    "model.deep": '{"a":' + "[" * 2000000,
    "collectives.groups": table(COLLECTIVES, 120000, "all_reduce,%d,1,8,1e-4".replace("%d", "1%06d")),
    "collectives.sizes": COLLECTIVES + "\n" + "".join(f"all_reduce,8,1,{200000 - i},1e-4\n" for i in range(120000)),
    "kineto.steps": events(keys(18000, STEP), keys(30000, OPERATOR)),
    "kineto.deep": '{"traceEvents":[{"ph":"X","args":' + "[" * 3000000,
    "launch-json.keys": '{"train_batch_size":8,' + keys(80000, '"k%d":1') + "}",
    "launch-toml.keys": '[model]\nflavor="8B"\n' + "".join(f"k{i}=1\n" for i in range(100000)),
    "launch-yaml.deep": "distributed_type: FSDP\na: " + "[" * 400000,
    "launch-shell.deep": "A=" + "$((" * 300000 + "\n",
    "launch-shell.doubled": "A=xxxxxxxx\n" + "A=$A$A\n" * 10000 + "torchrun p.py --num-layers $A\n",
    "toml.deep": "a = " + "[" * 1000000,
}

for name, text in LARGE.items():
    with open(os.path.join(sys.argv[1], name), "w") as file:
        file.write(text)
