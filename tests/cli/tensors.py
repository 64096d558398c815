"""Reads and writes safetensors files, of tensors as {name: (dtype, shape, bytes)}."""
import json
import struct


def read(path):
    """Its metadata and tensors."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        elements = file.read()
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (entry["dtype"], tuple(entry["shape"]), elements[slice(*entry["data_offsets"])])
                      for name, entry in header.items()}


def write(path, tensors, metadata=None):
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, elements) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(elements)]}
        at += len(elements)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, elements in tensors.values():
            file.write(elements)
