"""The batched engine's training on a GPU: agreement with float64 on the CPU, time of a round, samples a second.

    PYTHONPATH=src python benchmarks/batched_gpu.py [--out FILE] [--small]

Needs torch and numpy only, and draws its data: rows of 768 dimensions, twelve models, 768-512-512, batch 128, one
epoch, dropout 0.1, shared step; weights and moments in float32, products in TF32 or in bfloat16 (gradients and a copy
of the weights then are, too). A round is what the GPU does once the rows are there: a client's batches and seeds are
drawn on the host before, and both times are shown. The limit is memory traffic: every step reads weights (forward, and
backward below the first layer), writes gradients, reads them for their length, and AdamW reads gradients, weights and
two moments and writes three, and the copy; bytes over the bandwidth of a large copy.
"""

import argparse
import json
import time
from types import SimpleNamespace

import numpy as np
import torch

from fedrouter.engines.batched.layout import Layout
from fedrouter.engines.batched.plan import HASHED, order_of, steps_of
from fedrouter.engines.batched.stack import Networks, Stack
from fedrouter.engines.batched.training import train_together
from fedrouter.federation.local_training import TrainingJob
from fedrouter.routers.mlp import HEADS, initial_weights

DIMENSION, HIDDEN, MODELS, BATCH = 768, (512, 512), 12, 128
ROUNDS = 10


def request_of(weights):
    return SimpleNamespace(
        models=tuple(f"model-{number}" for number in range(MODELS)),
        weights=weights,
        epochs=1,
        batch_size=BATCH,
        learning_rate=1e-3,
        weight_decay=3e-4,
        clip_norm=1.0,
        dropout=0.1,
        shared_step=True,
        heads_only=False,
        base={},
        anchored=(),
        distillation=0.0,
        returned_weights=lambda: weights,
    )


def weights_of():
    weights = initial_weights(DIMENSION, HIDDEN, MODELS, 1)
    return {name: np.zeros_like(array) if name.startswith(HEADS) else array for name, array in weights.items()}


def jobs_of(request, sizes):
    draw = np.random.default_rng(7)
    jobs = []
    for seed, size in enumerate(sizes):
        rows = draw.standard_normal((size, DIMENSION), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        accuracy = (rows[:, 0] > 0).astype(np.float64)
        jobs.append(TrainingJob(request, rows, draw.integers(0, MODELS, size), accuracy, draw.normal(size=size), seed))
    return jobs


def agreement(device):
    """The relative distance of the GPU's updates from those of float64 on the CPU, worst client."""
    weights = weights_of()
    jobs = jobs_of(request_of(weights), (700, 300, 270, 64, 3))
    exact = [*train_together(jobs, "cpu", "float64", HASHED)]
    found = {}
    for name, tf32 in (("float32", False), ("tf32", True), ("bfloat16", False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        ours = train_together(jobs, device, "bfloat16" if name == "bfloat16" else "float32", HASHED)
        distances = []
        for (mine, loss), (true, best) in zip(ours, exact, strict=True):
            step = {key: true[key].astype(np.float64) - weights[key] for key in true}
            off = sum(((mine[key] - true[key].astype(np.float64)) ** 2).sum() for key in true)
            distances.append(float(np.sqrt(off / sum((each**2).sum() for each in step.values()))))
            assert abs(loss - best) < (5e-2 if name == "bfloat16" else 1e-2) * best
        found[name] = max(distances)
    return found


def bandwidth(device):
    """Bytes a second of a large copy, read and written."""
    source = torch.randn(2**30 // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / median(lambda: target.copy_(source), device)


def median(what, device, times=ROUNDS):
    found = []
    for _ in range(times + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        what()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return float(np.median(found[2:]))


def measure(clients, rows, device, rate, precision):
    torch._dynamo.reset()  # kernels of these shapes
    torch.backends.cuda.matmul.allow_tf32 = True
    weights = weights_of()
    request, layout = request_of(weights), Layout.of(weights)
    jobs = jobs_of(request, [rows] * clients)
    jobs = [jobs[place] for place in order_of(jobs)]
    began = time.perf_counter()
    steps = [*steps_of(jobs, layout, HASHED)]
    planned = time.perf_counter() - began
    began = time.perf_counter()
    networks = Networks.of(layout, clients, device, getattr(torch, precision))
    stack, row = Stack.of(jobs, networks), layout.pack(weights)
    networks.start(row)
    stack.run(steps)
    if device == "cuda":
        torch.cuda.synchronize()
    first = time.perf_counter() - began

    def one_round():
        networks.start(row)
        stack.run(steps)

    seconds = median(one_round, device)
    below = sum(array.size for name, array in weights.items() if name != "layer1.weight")
    # Bytes: seven times four for AdamW on weights and moments; weights for products, and gradients, in their precision.
    size = networks.gradients.element_size()
    copies = size if networks.half is not None else 0
    traffic = clients * len(steps) * ((6 * 4 + 4 * size + copies) * layout.numbers + size * below)
    return {
        "products": "tf32" if precision == "float32" else precision,
        "clients": clients,
        "rows": rows,
        "steps": len(steps),
        "ms a round": round(1e3 * seconds, 3),
        "ms a step": round(1e3 * seconds / len(steps), 3),
        "million samples/s": round(clients * rows / seconds / 1e6, 3),
        "share of the memory limit": round(traffic / rate / seconds, 3),
        "first round, with compiling, s": round(first, 2),
        "drawing batches and seeds on the host, s": round(planned, 3),
        "peak GB": round(torch.cuda.max_memory_allocated() / 1e9, 2) if device == "cuda" else None,
    }


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out")
    options.add_argument("--small", action="store_true", help="a few rows on the CPU, to try the script")
    given = options.parse_args()
    device = "cpu" if given.small else "cuda"
    found = {
        "device": "cpu" if given.small else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy, TB/s": round(bandwidth(device) / 1e12, 3),
        "distance from float64": agreement(device),
        "rounds": [],
    }
    print(json.dumps(found, indent=2), flush=True)
    for clients, rows in ((2, 300),) if given.small else ((10, 2700), (100, 2700), (1000, 640), (1000, 2700)):
        for precision in ("float32", "bfloat16"):
            found["rounds"].append(measure(clients, rows, device, 1e12 * found["copy, TB/s"], precision))
            print(json.dumps(found["rounds"][-1]), flush=True)
            if given.out:
                with open(given.out, "w") as file:
                    json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
