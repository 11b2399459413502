"""All uses of numba's internals: vectors in registers, prefetching, calls by address.

LLVM does not keep a sum in registers over the rows of a matrix, because the sum might alias the matrix, and it cannot
prefetch the rows in a list of row numbers. Here both loops are twice as fast, and steps on two rows, which might also
overlap, are 3 to 6 times faster.
"""

import math
import os
from collections.abc import Callable, Iterator
from functools import cache, partial, reduce
from typing import Any

from llvmlite import ir
from numba import carray, cfunc, float64, njit, types
from numba.core.cgutils import alloca_once_value, for_range, get_or_insert_function
from numba.extending import intrinsic, overload

from rmopt.kernels.memory import LANES, LINE

# The number of columns processed at once, if there are as many.
BLOCKS = 32, 16, 8, 4, 1
# The largest number of sums of the same columns.
MOST = 8
# The number of rows processed together if longer than a block, so that each is fetched at once.
TILE = 8
WHOLE = ir.IntType(64)
INLINED = {"nogil": True, "forceinline": True}
FLAGS = {"flags": ("contract",)}
# Rows up to this length stay in registers between both halves of a step.
KEPT = 32


def _spread(builder: Any, number: Any, kind: Any) -> Any:
    """Return a vector of a type filled with a number."""
    lane, empty = ir.IntType(32), ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, number, lane(0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(lane, kind.count), [0] * kind.count)
    )


class Loops:
    """The tools of the loops below: vectors, and arrays in C order, of doubles unless `align` is smaller."""

    align = 8

    def __init__(self, context: Any, builder: Any, kinds: Any, given: Any) -> None:
        self.context, self.builder, self.kinds, self.given = context, builder, kinds, given

    def array(self, at: int) -> Any:
        """Return an argument, an array."""
        return self.context.make_array(self.kinds[at])(self.context, self.builder, self.given[at])

    def whole(self, at: int) -> Any:
        """Return an argument, a whole number."""
        return self.context.cast(self.builder, self.given[at], self.kinds[at], types.int64)

    def entry(self, at: int, position: Any) -> Any:
        """Return a number of an array, or the position itself if row numbers are None."""
        if isinstance(self.kinds[at], types.NoneType):
            return position
        found = self.builder.load(self.builder.gep(self.array(at).data, [position]))
        narrow = isinstance(found.type, ir.IntType) and found.type != WHOLE
        # No sign: row numbers are not negative.
        return self.builder.zext(found, WHOLE) if narrow else found

    def block(self, at: int, row: Any, width: Any, first: Any, size: int) -> list[Any]:
        """Return the places of `size` numbers of a row, from `first` on, as places of vectors."""
        builder, lanes = self.builder, min(size, LANES)
        position = builder.add(builder.mul(row, width), first)
        kind = ir.VectorType(self.context.get_value_type(self.kinds[at].dtype), lanes)
        place = builder.gep(self.array(at).data, [position])
        parts = [builder.gep(place, [WHOLE(part)]) for part in range(0, size, lanes)]
        return [builder.bitcast(part, kind.as_pointer()) for part in parts]

    def load(self, places: list[Any]) -> list[Any]:
        return [self.builder.load(place, align=self.align) for place in places]

    def store(self, numbers: list[Any], places: list[Any]) -> None:
        for one, place in zip(numbers, places, strict=True):
            self.builder.store(one, place, align=self.align)

    def plus(self, sums: list[Any], number: Any, taken: list[Any]) -> list[Any]:
        """Return the sums with a number times the vectors taken added."""
        spread = [_spread(self.builder, number, vector.type) for vector in taken[:1]] * len(taken)
        products = [self.builder.fmul(*both, **FLAGS) for both in zip(spread, taken, strict=True)]
        return [self.builder.fadd(*both, **FLAGS) for both in zip(sums, products, strict=True)]

    def blocks(self, width: Any) -> Iterator[tuple[int, Any]]:
        """Yield sizes and first columns of the blocks of a row."""
        builder, done = self.builder, WHOLE(0)
        for size in BLOCKS:
            count = builder.sdiv(builder.sub(width, done), WHOLE(size))
            with for_range(builder, count) as block:
                yield size, builder.add(done, builder.mul(block.index, WHOLE(size)))
            done = builder.add(done, builder.mul(count, WHOLE(size)))


def _intrinsic(written: int) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator from a loop for a block of columns to (A, indices, values, start, stop, scale, vector).

    It writes A or the vector: `written` is 0 or 1. Arrays with strides, which it would ignore, are refused.
    """

    def made(body: Callable[..., None]) -> Any:
        @intrinsic
        def loop(typing, A, indices, values, start, stop, scale, vector):
            rows = () if isinstance(indices, types.NoneType) else (indices,)
            arrays = A, values, vector, *rows
            if not all(isinstance(one, types.Array) and one.layout == "C" for one in arrays):
                return None
            reals = all(one.dtype == float64 for one in (A, values, vector))
            if not (reals and all(isinstance(one.dtype, types.Integer) for one in rows)):
                return None
            if not (A, vector)[written].mutable:
                return None

            def codegen(context, builder, signature, given):
                loops = Loops(context, builder, signature.args, given)
                width = builder.extract_value(loops.array(0).shape, 1)
                for size, first in loops.blocks(width):
                    body(loops, width, first, size)
                return context.get_dummy_value()

            return types.void(A, indices, values, start, stop, float64, vector), codegen

        return loop

    return made


def _numbers(loops: Loops, ways: int = 1) -> Iterator[tuple[int, Any, Any]]:
    """Yield row numbers and the factors of their rows, `ways` at a time, each with its place among them."""
    builder, start, stop = loops.builder, loops.whole(3), loops.whole(4)

    def found(at: Any) -> tuple[Any, Any]:
        return loops.entry(1, at), builder.fmul(loops.given[5], loops.entry(2, at))

    if ways > 1:
        groups = builder.sdiv(builder.sub(stop, start), WHOLE(ways))
        with for_range(builder, groups) as group:
            at = builder.add(start, builder.mul(group.index, WHOLE(ways)))
            for way in range(ways):
                yield way, *found(builder.add(at, WHOLE(way)))
        start = builder.add(start, builder.mul(groups, WHOLE(ways)))
    with for_range(builder, stop, start) as row:
        yield 0, *found(row.index)


@_intrinsic(written=1)
def _sum(loops: Loops, width: Any, first: Any, size: int) -> None:
    builder, out = loops.builder, loops.block(6, WHOLE(0), width, first, size)
    # Each addition waits for the previous one, so narrow blocks have several sums, of rows in turn.
    ways, begun = min(MOST, BLOCKS[0] // size), loops.load(out)
    zeros = [ir.Constant(one.type, None) for one in begun]
    kept = [[alloca_once_value(builder, one) for one in found] for found in (begun, *[zeros] * (ways - 1))]
    for way, row, number in _numbers(loops, ways):
        taken = loops.load(loops.block(0, row, width, first, size))
        loops.store(loops.plus(loops.load(kept[way]), number, taken), kept[way])
    sums = [loops.load(one) for one in kept]
    while len(sums) > 1:
        half = len(sums) // 2
        pairs = zip(sums[:half], sums[half:], strict=True)
        sums = [[builder.fadd(*two) for two in zip(*pair, strict=True)] for pair in pairs]
    loops.store(sums[0], out)


@_intrinsic(written=0)
def _update(loops: Loops, width: Any, first: Any, size: int) -> None:
    added = loops.load(loops.block(6, WHOLE(0), width, first, size))
    for _, row, number in _numbers(loops):
        places = loops.block(0, row, width, first, size)
        loops.store(loops.plus(loops.load(places), number, added), places)


def _in_tiles(loop: Any, indices: Any) -> Callable[..., None]:
    """Return the loop, over a few rows at a time if they are scattered and longer than a block."""

    def whole(A, indices, values, start, stop, scale, vector):
        loop(A, indices, values, start, stop, scale, vector)

    def tiled(A, indices, values, start, stop, scale, vector):
        if A.shape[1] <= BLOCKS[0]:
            loop(A, indices, values, start, stop, scale, vector)
        else:
            for first in range(start, stop, TILE):
                loop(A, indices, values, first, min(first + TILE, stop), scale, vector)

    return whole if isinstance(indices, types.NoneType) else tiled


@intrinsic
def _fetch(typing, array, at):
    """Begin to load the cache line of an array's entry, without waiting."""

    def codegen(context, builder, signature, given):
        loops = Loops(context, builder, signature.args, given)
        place = builder.gep(loops.array(0).data, [loops.whole(1)])
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        fetch = get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(fetch, [builder.bitcast(place, byte), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, at), codegen


def define_rows(add_rows: Any, add_to_rows: Any, fetch: Any) -> None:
    """Define the bodiless functions of `rmopt.kernels.vectors` for compiled loops."""

    @overload(add_rows, jit_options=INLINED)
    def _add_rows(A, indices, values, start, stop, scale, vector):
        return _in_tiles(_sum, indices)

    @overload(add_to_rows, jit_options=INLINED)
    def _add_to_rows(A, indices, values, start, stop, scale, vector):
        return _in_tiles(_update, indices)

    @overload(fetch, jit_options=INLINED)
    def _fetch_entries(array, start, stop):
        def fetch(array, start, stop):
            for at in range(start, stop, LINE // array.itemsize):
                _fetch(array, at)

        return fetch


@intrinsic
def _add_at_once(typing, array, number):
    def codegen(context, builder, signature, given):
        place = Loops(context, builder, signature.args, given).array(0).data
        return builder.atomic_rmw("add", place, given[1], "seq_cst")

    return types.int64(array, types.int64), codegen


@intrinsic
def _sleep(typing, microseconds):
    def codegen(context, builder, signature, given):
        # Windows counts milliseconds.
        name, unit = ("Sleep", 1000) if os.name == "nt" else ("usleep", 1)
        number = ir.IntType(32)
        wait = get_or_insert_function(builder.module, ir.FunctionType(number, [number]), name)
        builder.call(wait, [builder.trunc(builder.sdiv(given[0], WHOLE(unit)), number)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def _place(typing, address):
    def codegen(context, builder, signature, given):
        return builder.inttoptr(given[0], ir.DoubleType().as_pointer())

    return types.CPointer(float64)(types.int64), codegen


def define_meeting(add_at_once: Any, sleep: Any, matrix_at: Any) -> None:
    """Define the bodiless functions of `rmopt.kernels.meeting` for compiled loops."""
    overload(add_at_once)(lambda array, number: lambda array, number: _add_at_once(array, number))
    overload(sleep)(lambda microseconds: lambda microseconds: _sleep(microseconds))
    overload(matrix_at)(
        lambda address, rows, width: lambda address, rows, width: carray(_place(address), (rows, width))
    )


def callable_by_address(compiled: Any) -> Any:
    """Return a function of numbers (z, y) compiled for `Own`, with an ``address``."""

    @cfunc(float64(float64, float64, types.CPointer(float64)))
    def guarded(z, y, raised):
        try:
            return compiled(z, y)
        except Exception:
            place = carray(raised, 3)
            place[0], place[1], place[2] = z, y, 1.0
            return math.nan

    return guarded


@intrinsic
def _call(context, own, z, y):
    def call(context, builder, signature, arguments):
        own, z, y = arguments
        number = ir.DoubleType()
        function = ir.FunctionType(number, [number, number, number.as_pointer()]).as_pointer()
        slope, raised = builder.extract_value(own, 0), builder.extract_value(own, 1)
        to_raised = builder.inttoptr(raised, number.as_pointer())
        return builder.call(builder.inttoptr(slope, function), [z, y, to_raised])

    return float64(own, float64, float64), call


def define_slope(slope_of: Any, slope: Any) -> None:
    """Define slopes for compiled loops: by a code, or by the address of an `Own`."""

    @overload(slope_of, jit_options=INLINED)
    def _slope_of(loss, z, y):
        if isinstance(loss, types.Integer):
            return lambda loss, z, y: slope(loss, z, y)
        return lambda loss, z, y: _call(loss, z, y)


@intrinsic(prefer_literal=True)
def _entry_step(typing, A, i, B, j, weights, shrink, y, eta, k):
    """Move rows i and j for the entry y, and return the residual e = aᵀb − y before that.

    a, b ← shrink ∘ (a − τ weights ∘ b), shrink ∘ (b − τ weights ∘ a), with τ = η e / (1 + η Σ weights (a² + b²)).
    """

    def codegen(context, builder, signature, given):
        loops, width = Loops(context, builder, signature.args, given), k.literal_value
        T, loops.align, fast = context.get_value_type(A.dtype), A.dtype.bitwidth // 8, {"flags": ("fast",)}
        plus, times, minus = (partial(one, **fast) for one in (builder.fadd, builder.fmul, builder.fsub))

        def row(at, number):
            return loops.block(at, number, WHOLE(width), WHOLE(0), width)

        def total(parts):
            kind = ir.FunctionType(T, [T, parts[0].type])
            name = f"llvm.vector.reduce.fadd.v{LANES}f{A.dtype.bitwidth}"
            summed = get_or_insert_function(builder.module, kind, name)
            return builder.call(summed, [ir.Constant(T, 0.0), reduce(plus, parts)], fastmath=("fast",))

        rows = loops.whole(1), loops.whole(3), WHOLE(0), WHOLE(0)
        places = list(zip(*map(row, (0, 2, 4, 5), rows), strict=True))
        products, squares, kept, (value, eta) = [], [], [], given[6:8]
        for a_at, b_at, w_at, _ in places:
            a, b = loops.load((a_at, b_at))
            kept.append((a, b))
            products.append(times(a, b))
            squares.append(times(*loops.load((w_at,)), plus(times(a, a), times(b, b))))
        residual = minus(total(products), value)
        damped = plus(ir.Constant(T, 1.0), times(eta, total(squares)))
        tau = _spread(builder, builder.fdiv(times(eta, residual), damped, **fast), products[0].type)
        for (a_at, b_at, *others), pair in zip(places, kept, strict=True):
            a, b = pair if width <= KEPT else loops.load((a_at, b_at))
            weight, h = loops.load(others)
            pull = times(tau, weight)
            for at, one, other in ((a_at, a, b), (b_at, b, a)):
                loops.store([times(h, minus(one, times(pull, other)))], [at])
        return residual

    if isinstance(k, types.IntegerLiteral):
        return A.dtype(A, i, B, j, weights, shrink, y, eta, k), codegen
    return None


@cache
def entry_steps(k):
    """Return the loop for rows of k numbers, a multiple of `LANES`.

    It takes A, B, C-contiguous with k columns; weights, shrink, shape (k,); rows, columns, values of the entries in
    order; the starts of blocks, the first block and the end; η; and the array for the sum of each block's squared
    residuals, each before its step. All numbers are of one precision.
    """

    @njit(cache=True, nogil=True)
    def run(A, B, weights, shrink, rows, columns, values, cuts, first, last, eta, squares):
        for block in range(first, last):
            total = 0.0
            for t in range(cuts[block], cuts[block + 1]):
                residual = _entry_step(A, rows[t], B, columns[t], weights, shrink, values[t], eta, k)
                total += residual * residual
            squares[block] = total

    return run
