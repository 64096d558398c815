"""What a batch of Llama 3 8B would take on a node of H100, by how its eight GPUs are shared out: libranvier from Python."""
import ctypes


class Prediction(ctypes.Structure):
    """struct ranvier_prediction of ranvier.h."""
    _fields_ = [(name, ctypes.c_double) for name in ("batch_seconds", "low_seconds", "high_seconds", "tokens_per_second",
                                                     "flops_per_gpu_per_second", "percent_of_peak")]
    _fields_ += [("device_bytes", ctypes.c_int64), ("device_capacity_bytes", ctypes.c_int64), ("fits", ctypes.c_int32),
                 ("ranks", ctypes.c_int32)]


ranvier = ctypes.CDLL("libranvier.so.0")
ranvier.ranvier_machine_open.restype = ctypes.c_void_p
ranvier.ranvier_machine_close.argtypes = [ctypes.c_void_p]
ranvier.ranvier_predict.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Prediction), ctypes.c_char_p, ctypes.c_size_t]


def predict(machine, *words):
    """The prediction of a plan; what is wrong with it is a ValueError."""
    message = ctypes.create_string_buffer(1024)
    plan = (ctypes.c_char_p * (len(words) + 1))(*(str(word).encode() for word in words), None)
    batch = Prediction()
    if ranvier.ranvier_predict(machine, plan, batch, message, len(message)):
        raise ValueError(message.value.decode())
    return batch


text = ctypes.create_string_buffer(1024)
node = ranvier.ranvier_machine_open(b"8xh100", None, None, 8, text, ctypes.c_size_t(len(text)))
if not node:
    raise SystemExit(text.value.decode())
for tp in (1, 2, 4, 8):
    one = predict(node, "llama3-8b", "--tp", tp, "--dp", 8 // tp, "--zero", 1, "--micro-batch-size", 1, "--batch-size", 64)
    print(f"--tp {tp}: {one.batch_seconds:.3f} s, {one.device_bytes / 2**30:.1f} GiB a GPU{'' if one.fits else ', which does not fit'}")
ranvier.ranvier_machine_close(node)
