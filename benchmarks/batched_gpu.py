"""The batched engine's training on a GPU: agreement with float64 on the CPU, time of a round, samples a second.

    PYTHONPATH=src python benchmarks/batched_gpu.py [--out FILE] [--small] [--profile]

Needs torch and numpy only, and draws its data: rows of 768 dimensions, twelve models, 768-512-512, batch 128, one
epoch, dropout 0.1, shared step; weights and moments in float32, products in float32, TF32 or bfloat16 (then of a copy
of the weights). A round is what the GPU does once the rows are there: a client's batches and seeds are drawn on the
host before, and both times are shown. The limit is memory traffic: every step reads weights for products (forward, and
backward below the first layer), and AdamW reads weights and two moments and writes three, and the copy; the initial
step of a round only writes. Bytes over the bandwidth of a large copy.
"""

import argparse
import json
import time
from types import SimpleNamespace

import numpy as np
import torch

from fedrouter.engines.batched.layout import Layout
from fedrouter.engines.batched.networks import Networks
from fedrouter.engines.batched.plan import HASHED, order_of, steps_of
from fedrouter.engines.batched.recorded import RecordedStack
from fedrouter.engines.batched.stack import Stack
from fedrouter.federation.local_training import TrainingJob
from fedrouter.routers.mlp import HEADS, initial_weights

DIMENSION, HIDDEN, MODELS, BATCH = 768, (512, 512), 12, 128
ROUNDS = 10
OWN = 20
"""Clients with rows of their own; the others repeat them."""
PRECISIONS = {"float32": ("float32", False), "tf32": ("float32", True), "bfloat16": ("bfloat16", False)}
"""Of products: that of the engine, and whether torch may use TF32."""


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
    jobs, drawn = [], []
    for seed, size in enumerate(sizes):
        if seed < OWN:
            drawn.append(draw.standard_normal((size, DIMENSION), np.float32))
            drawn[-1] /= np.linalg.norm(drawn[-1], axis=1, keepdims=True)
        rows = drawn[seed % OWN]
        accuracy = (rows[:, 0] > 0).astype(np.float64)
        jobs.append(TrainingJob(request, rows, draw.integers(0, MODELS, size), accuracy, draw.normal(size=size), seed))
    return jobs


def agreement(device):
    """Relative distances of updates, mean and worst of 20 clients, by precision.

    Of the fused kernels from float64 on the CPU; of torch's own on the GPU, which write gradients; and between both.
    """
    weights = weights_of()
    row, layout = Layout.of(weights).pack(weights), Layout.of(weights)
    request = request_of(weights)
    jobs = jobs_of(request, (700, 300, 259, 64, 3, *range(600, 0, -40)))  # the last batch of 259 has 131 rows
    jobs = [jobs[place] for place in order_of(jobs)]
    exact = update(jobs, layout, row, "cpu", torch.float64, False)
    found = {}
    for name, (precision, tf32) in PRECISIONS.items():
        torch.backends.cuda.matmul.allow_tf32 = tf32
        kind = getattr(torch, precision)
        ours = update(jobs, layout, row, device, kind, device == "cuda")
        plain = update(jobs, layout, row, device, kind, False)
        found[name] = {
            "fused kernels": distance(ours, exact),
            "torch's kernels": distance(plain, exact),
            "between them": distance(ours, plain),
        }
    return found


def update(jobs, layout, row, device, kind, fused):
    """By how much training changes weights ``(clients, numbers)``."""
    networks = Networks.of(layout, len(jobs), device, kind, fused)
    networks.start(row)
    loaded(jobs, networks).run(steps_of(jobs, layout, HASHED))
    return networks.parameters.cpu().double().numpy() - row


def loaded(jobs, networks):
    if not networks.fused:
        return Stack.of(jobs, networks)
    stack = RecordedStack(networks)
    stack.load(jobs)
    return stack


def distance(ours, exact):
    found = np.linalg.norm(ours - exact, axis=1) / np.linalg.norm(exact, axis=1)
    return {"mean": float(found.mean()), "worst": float(found.max())}


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


def measure(clients, rows, device, rate, name, profiled):
    precision, torch.backends.cuda.matmul.allow_tf32 = PRECISIONS[name]
    weights = weights_of()
    request, layout = request_of(weights), Layout.of(weights)
    jobs = jobs_of(request, [rows] * clients)
    jobs = [jobs[place] for place in order_of(jobs)]
    began = time.perf_counter()
    steps = [*steps_of(jobs, layout, HASHED)]
    networks = Networks.of(layout, clients, device, getattr(torch, precision))
    stack, row = loaded(jobs, networks), layout.pack(weights)
    packed = [*stack.packed(steps)] if networks.fused else steps
    take = stack.take if networks.fused else stack.run
    planned = time.perf_counter() - began
    began = time.perf_counter()

    def one_round():
        networks.start(row)
        take(packed)
        if device == "cuda":
            torch.cuda.synchronize()

    one_round()
    first = time.perf_counter() - began
    seconds = median(one_round, device)
    if profiled:
        show_kernels(one_round, len(steps))
    size, copy = networks.kind.itemsize, 0 if networks.half is None else networks.kind.itemsize
    backward = layout.numbers - weights["layer1.weight"].size
    step, initial = (6 * 4 + copy + size) * layout.numbers + size * backward, (3 * 4 + copy) * layout.numbers
    traffic = clients * (initial + (len(steps) - 1) * step)
    return {
        "products": name,
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


def show_kernels(what, steps):
    """Where the time of a step goes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        what()
    for each in sorted(profile.key_averages(), key=lambda each: -each.device_time_total)[:20]:
        print(f"{each.device_time_total / steps:9.1f} us a step, {each.count / steps:5.1f} times  {each.key[:80]}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out")
    options.add_argument("--small", action="store_true", help="a few rows on the CPU, to try the script")
    options.add_argument("--profile", action="store_true", help="show the time of each kernel")
    options.add_argument("--sizes", nargs="+", default=["10x2700", "100x2700", "1000x640", "1000x2700"])
    options.add_argument("--products", nargs="+", default=[*PRECISIONS], choices=[*PRECISIONS])
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
    for size in ["2x300"] if given.small else given.sizes:
        clients, rows = map(int, size.split("x"))
        for name in given.products:
            rate = 1e12 * found["copy, TB/s"]
            found["rounds"].append(measure(clients, rows, device, rate, name, given.profile))
            print(json.dumps(found["rounds"][-1]), flush=True)
            if given.out:
                with open(given.out, "w") as file:
                    json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
