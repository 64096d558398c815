"""A text to train on in tests: words from a small grammar, so that there is something to learn; the same always."""
import random


def write(path, length=40000):
    source = random.Random(7)
    nouns = "node signal axon stage rank tensor message lane bucket stream".split()
    verbs = "sends holds waits reads sums moves keeps meets".split()
    lines = []
    size = 0
    while size < length:
        line = f"the {source.choice(nouns)} {source.choice(verbs)} a {source.choice(nouns)}.\n"
        lines.append(line)
        size += len(line)
    with open(path, "w") as out:
        out.write("".join(lines)[:length])
