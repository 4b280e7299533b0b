"""Triton kernels of a step; :mod:`fedrouter.engines.batched.fused` launches them."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _kept(seed, at, LIMIT: tl.constexpr):
    """:func:`fedrouter.engines.batched.plan.hashed_mask` at these numbers of an array ``(rows, units)``."""
    bits = (at * -1640531527) ^ seed
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    bits = bits * 2146121005
    bits = bits ^ ((bits >> 15) & 0x1FFFF)
    bits = bits * -2073254261
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    return (bits & 0x7FFFFFFF) >= LIMIT


@triton.jit
def _normal(values):
    """The distribution of a normal variable and its density, which share an exponential; both to 1.5e-7.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
    """
    bell = tl.exp2(values * values * -0.7213475204444817)
    t = 1 / (1 + 0.23164190 * tl.abs(values))
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    half = 0.5 * series * bell
    return tl.where(values < 0, half, 1 - half), bell * 0.3989422804014327


@triton.jit
def activate_kernel(
    linear, bias, weight, shift, seeds, found, mean, scale, rows, units, numbers,
    SMALL: tl.constexpr, LIMIT: tl.constexpr, LARGER: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, AT_ONCE: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    unit = tl.arange(0, UNITS)
    exists = unit < units
    offset = tl.load(bias + client * numbers + unit, mask=exists, other=0.0)
    factor = tl.load(weight + client * numbers + unit, mask=exists, other=0.0)
    added = tl.load(shift + client * numbers + unit, mask=exists, other=0.0)
    seed = tl.load(seeds + client)
    linear += client * rows * units
    found += client * rows * units
    mean += client * rows
    scale += client * rows
    for start in range(0, ROWS, AT_ONCE):
        row = tl.program_id(0) * ROWS + start + tl.arange(0, AT_ONCE)
        inside = (row[:, None] < rows) & exists[None, :]
        at = row[:, None] * units + unit[None, :]
        values = tl.load(linear + at, mask=inside, other=0.0).to(tl.float32) + offset[None, :]
        middle = tl.sum(values, axis=1) / units
        values = tl.where(exists[None, :], values - middle[:, None], 0.0)
        width = 1 / tl.sqrt(tl.sum(values * values, axis=1) / units + SMALL)
        tl.store(mean + row, middle, mask=row < rows)
        tl.store(scale + row, width, mask=row < rows)
        values = values * width[:, None] * factor[None, :] + added[None, :]
        below, _ = _normal(values)
        values *= below
        if DROPS:
            values = tl.where(_kept(seed, at, LIMIT), values * LARGER, 0.0)
        tl.store(found + at, values.to(found.dtype.element_ty), mask=inside)


@triton.jit
def deactivate_kernel(
    delta, linear, bias, mean, scale, weight, shift, seeds, by_vectors, rows, units, numbers,
    LIMIT: tl.constexpr, LARGER: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, AT_ONCE: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    unit = tl.arange(0, UNITS)
    exists = unit < units
    offset = tl.load(bias + client * numbers + unit, mask=exists, other=0.0)
    factor = tl.load(weight + client * numbers + unit, mask=exists, other=0.0)
    added = tl.load(shift + client * numbers + unit, mask=exists, other=0.0)
    seed = tl.load(seeds + client)
    delta += client * rows * units
    linear += client * rows * units
    mean += client * rows
    scale += client * rows
    by_bias = tl.zeros((AT_ONCE, UNITS), tl.float32)
    by_weight = tl.zeros((AT_ONCE, UNITS), tl.float32)
    by_shift = tl.zeros((AT_ONCE, UNITS), tl.float32)
    for start in range(0, ROWS, AT_ONCE):
        row = tl.program_id(0) * ROWS + start + tl.arange(0, AT_ONCE)
        inside = (row[:, None] < rows) & exists[None, :]
        at = row[:, None] * units + unit[None, :]
        change = tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        normal = tl.load(linear + at, mask=inside, other=0.0).to(tl.float32) + offset[None, :]
        middle = tl.load(mean + row, mask=row < rows, other=0.0)
        width = tl.load(scale + row, mask=row < rows, other=0.0)
        normal = (normal - middle[:, None]) * width[:, None]
        values = normal * factor[None, :] + added[None, :]
        below, density = _normal(values)
        change *= below + values * density
        if DROPS:
            change = tl.where(_kept(seed, at, LIMIT), change * LARGER, 0.0)
        by_weight += change * normal
        by_shift += change
        change *= factor[None, :]
        along = tl.sum(change * normal, axis=1) / units
        change = (change - tl.sum(change, axis=1)[:, None] / units - normal * along[:, None]) * width[:, None]
        by_bias += change
        tl.store(delta + at, change.to(delta.dtype.element_ty), mask=inside)
    to = by_vectors + (client * tl.num_programs(0) + tl.program_id(0)) * 3 * units + unit
    tl.store(to, tl.sum(by_bias, axis=0), mask=exists)
    tl.store(to + units, tl.sum(by_weight, axis=0), mask=exists)
    tl.store(to + 2 * units, tl.sum(by_shift, axis=0), mask=exists)


@triton.jit
def loss_kernel(
    found, bias, model, targets, frozen, anchored, index, share, counted, losses, delta, by_bias,
    rows, models, heads, numbers, distillation, SHARED: tl.constexpr, DISTILLED: tl.constexpr,
    ROWS: tl.constexpr, MODELS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(0).to(tl.int64)
    column, head = tl.arange(0, MODELS), tl.arange(0, HEADS)
    exists = column < models
    bias += client * numbers
    for_accuracy = tl.load(bias + column, mask=exists, other=0.0)
    for_cost = tl.load(bias + models + column, mask=exists, other=0.0)
    held = tl.load(anchored + column, mask=exists, other=0.0)
    pull = distillation / tl.maximum(tl.sum(held), 1.0)
    total = 0.0
    by_bias += client * heads
    sum_accuracy = tl.zeros((MODELS,), tl.float32)
    sum_cost = tl.zeros((MODELS,), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        valid = row < rows
        inside = valid[:, None] & exists[None, :]
        place = tl.load(index + client * rows + row, mask=valid, other=0).to(tl.int64)
        part = tl.load(share + client * rows + row, mask=valid, other=0.0)
        asked = tl.load(model + place, mask=valid, other=-1)
        base = (client * rows + row[:, None]) * heads
        accuracy = (
            tl.load(found + base + column[None, :], mask=inside, other=0.0).to(tl.float32) + for_accuracy[None, :]
        )
        cost = (
            tl.load(found + base + models + column[None, :], mask=inside, other=0.0).to(tl.float32) + for_cost[None, :]
        )
        if SHARED:
            at = found + (client * rows + row) * heads + 2 * models
            accuracy += (tl.load(at, mask=valid, other=0.0).to(tl.float32) + tl.load(bias + 2 * models))[:, None]
            cost += (tl.load(at + 1, mask=valid, other=0.0).to(tl.float32) + tl.load(bias + 2 * models + 1))[:, None]
        accuracy = 1 / (1 + tl.exp(-accuracy))
        hit = inside & (column[None, :] == asked[:, None])
        by_accuracy = tl.where(hit, accuracy - tl.load(targets + 2 * place, mask=valid, other=0.0)[:, None], 0.0)
        by_cost = tl.where(hit, cost - tl.load(targets + 2 * place + 1, mask=valid, other=0.0)[:, None], 0.0)
        loss = tl.sum(by_accuracy * by_accuracy + by_cost * by_cost, axis=1)
        if DISTILLED:
            at = frozen + place[:, None] * 2 * models + column[None, :]
            of_accuracy = tl.where(inside, accuracy - tl.load(at, mask=inside, other=0.0), 0.0) * held[None, :]
            of_cost = tl.where(inside, cost - tl.load(at + models, mask=inside, other=0.0), 0.0) * held[None, :]
            loss += pull * tl.sum(of_accuracy * of_accuracy + of_cost * of_cost, axis=1)
            by_accuracy += pull * of_accuracy
            by_cost += pull * of_cost
        total += tl.sum(loss * part)
        by_accuracy *= 2 * part[:, None] * accuracy * (1 - accuracy)
        by_cost *= 2 * part[:, None]
        sum_accuracy += tl.sum(by_accuracy, axis=0)
        sum_cost += tl.sum(by_cost, axis=0)
        kind = delta.dtype.element_ty
        tl.store(delta + base + column[None, :], by_accuracy.to(kind), mask=inside)
        tl.store(delta + base + models + column[None, :], by_cost.to(kind), mask=inside)
        sums = tl.where(head[None, :] == 2 * models, tl.sum(by_accuracy, axis=1)[:, None], 0.0)
        sums = tl.where(head[None, :] == 2 * models + 1, tl.sum(by_cost, axis=1)[:, None], sums)
        rest = valid[:, None] & (head[None, :] >= 2 * models) & (head[None, :] < heads)
        tl.store(delta + base + head[None, :], (sums * SHARED).to(kind), mask=rest)
    tl.store(by_bias + column, sum_accuracy, mask=exists)
    tl.store(by_bias + models + column, sum_cost, mask=exists)
    sums = tl.where(head == 2 * models, tl.sum(sum_accuracy), 0.0)
    sums = tl.where(head == 2 * models + 1, tl.sum(sum_cost), sums)
    tl.store(by_bias + head, sums * SHARED, mask=(head >= 2 * models) & (head < heads))
    tl.store(losses + client, tl.load(losses + client) + total * tl.load(counted + client))


@triton.jit
def _gram(
    values, first, second, rows, width,
    SAME: tl.constexpr, PRECISION: tl.constexpr, SIDE: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Scalar products of two blocks of rows, ``(SIDE, SIDE)``."""
    row, column = tl.arange(0, SIDE), tl.arange(0, PART)
    found = tl.zeros((SIDE, SIDE), tl.float32)
    one, other = first + row[:, None], second + row[:, None]
    for start in range(0, width, PART):
        at = start + column[None, :]
        left = tl.load(values + one * width + at, mask=(one < rows) & (at < width), other=0.0)
        right = left
        if not SAME:
            right = tl.load(values + other * width + at, mask=(other < rows) & (at < width), other=0.0)
        found = tl.dot(left, tl.trans(right), found, input_precision=PRECISION)
    return found


@triton.jit
def squared_lengths_kernel(
    delta, below, by_vectors, squares, rows, outs, ins, parts,
    ADDS: tl.constexpr, VECTORS: tl.constexpr, SAME: tl.constexpr, PRECISION: tl.constexpr,
    SIDE: tl.constexpr, PART: tl.constexpr, OUTS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(0).to(tl.int64)
    delta += client * rows * outs
    below += client * rows * ins
    total = 0.0
    for first in range(0, rows, SIDE):
        for second in range(0, first + SIDE, SIDE):
            both = _gram(below, first, second, rows, ins, SAME, PRECISION, SIDE, PART)
            both *= _gram(delta, first, second, rows, outs, SAME, PRECISION, SIDE, PART)
            total += tl.sum(both) * tl.where(first == second, 1.0, 2.0)
    for which in tl.static_range(VECTORS):
        gradient = _summed(by_vectors + client * parts * VECTORS * outs, which, outs, parts, VECTORS, OUTS)
        total += tl.sum(gradient * gradient)
    if ADDS:
        total += tl.load(squares + client)
    tl.store(squares + client, total)


@triton.jit
def _summed(by_vectors, which, outs, parts, VECTORS: tl.constexpr, OUTS: tl.constexpr):
    """The gradient ``(OUTS,)`` of one of a client's vectors from its parts."""
    out = tl.arange(0, OUTS)
    found = tl.zeros((OUTS,), tl.float32)
    for part in range(parts):
        found += tl.load(by_vectors + (part * VECTORS + which) * outs + out, mask=out < outs, other=0.0)
    return found


@triton.jit
def _read(array, inside, EVEN: tl.constexpr):
    """Loads that are certainly inside go without a mask, in larger pieces."""
    if EVEN:  # noqa: SIM108 (the one that is not taken must not be compiled)
        found = tl.load(array)
    else:
        found = tl.load(array, mask=inside, other=0.0)
    return found


@triton.jit
def _move(
    begin, parameter, moments, squared, half, at, inside, gradient, rate, decay, fast,
    BETA1: tl.constexpr, BETA2: tl.constexpr, SMALL: tl.constexpr,
    INITIAL: tl.constexpr, HALF: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """A step of AdamW, in place; ``rate`` is corrected for the first moment, and ``fast`` corrects the second."""
    if INITIAL:
        weight = _read(begin + at, inside, EVEN)
        moment = gradient * (1 - BETA1)
        square = gradient * gradient * (1 - BETA2)
    else:
        weight = _read(parameter + at, inside, EVEN)
        moment = _read(moments + at, inside, EVEN)
        square = _read(squared + at, inside, EVEN)
        moment += (gradient - moment) * (1 - BETA1)
        square = square * BETA2 + gradient * gradient * (1 - BETA2)
    weight = weight * decay - rate * moment / (tl.sqrt(square * fast) + SMALL)
    if EVEN:
        inside = None
    tl.store(parameter + at, weight, mask=inside)
    tl.store(moments + at, moment, mask=inside)
    tl.store(squared + at, square, mask=inside)
    if HALF:
        tl.store(half + at, weight.to(half.dtype.element_ty), mask=inside)


@triton.jit
def descend_kernel(
    delta, below, by_vectors, begin, parameter, moments, squared, half, squares, share, corrections, rate, decay, clip,
    rows, outs, ins, parts, numbers, at_matrix, at_vectors, apart,
    BETA1: tl.constexpr, BETA2: tl.constexpr, SMALL: tl.constexpr, SLACK: tl.constexpr,
    INITIAL: tl.constexpr, HALF: tl.constexpr, VECTORS: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, OUTS: tl.constexpr,
    TILE: tl.constexpr, STRETCH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    if tl.load(share + client * rows) == 0:
        return
    # Of gradients that are nothing the rounded sum may be below zero.
    length = tl.sqrt(tl.maximum(tl.load(squares + client), 0.0))
    times = tl.minimum(clip / (length + SLACK), 1.0)
    rate = rate / tl.load(corrections)
    fast = 1 / tl.load(corrections + 1)
    parameter += client * numbers
    moments += client * numbers
    squared += client * numbers
    half += client * numbers
    if tl.program_id(0) * TILE >= outs:  # the last program has the vectors
        out = tl.arange(0, OUTS)
        for which in tl.static_range(VECTORS):
            gradient = _summed(by_vectors + client * parts * VECTORS * outs, which, outs, parts, VECTORS, OUTS) * times
            _move(
                begin, parameter, moments, squared, half, at_vectors + which * apart + out, out < outs, gradient,
                rate, decay, fast, BETA1, BETA2, SMALL, INITIAL, False, False,
            )  # fmt: skip
        return
    delta += client * rows * outs
    below += client * rows * ins
    out, row, into = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, ROWS), tl.arange(0, STRETCH)
    exists, valid = out < outs, row[:, None] < rows
    left = tl.trans(_read(delta + row[:, None] * outs + out[None, :], valid & exists[None, :], EVEN))
    for start in tl.range(0, ins, STRETCH, num_stages=STAGES):
        column = start + into[None, :]
        right = _read(below + row[:, None] * ins + column, valid & (column < ins), EVEN)
        gradient = tl.dot(left, right, input_precision=PRECISION)
        for block in tl.static_range(BLOCKS):
            more = ROWS + block * BLOCK + tl.arange(0, BLOCK)[:, None]
            lower = tl.load(delta + more * outs + out[None, :], mask=(more < rows) & exists[None, :], other=0.0)
            upper = tl.load(below + more * ins + column, mask=(more < rows) & (column < ins), other=0.0)
            gradient = tl.dot(tl.trans(lower), upper, gradient, input_precision=PRECISION)
        _move(
            begin, parameter, moments, squared, half, at_matrix + out[:, None] * ins + column,
            exists[:, None] & (column < ins), gradient * times, rate, decay, fast,
            BETA1, BETA2, SMALL, INITIAL, HALF, EVEN,
        )  # fmt: skip
