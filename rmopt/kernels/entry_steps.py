"""Steps of completion: each known entry moves one row of A and one of B, in metrics that are diagonal.

The loops are written in vectors of `LANES` numbers: LLVM does not vectorise them by itself, for it cannot know that a
row of A and a row of B do not overlap, and they are 3 to 6 times faster so.
"""

from functools import cache

from numba import njit, types
from numba.core.cgutils import get_or_insert_function, ir
from numba.extending import intrinsic

from rmopt.kernels.vectors import LANES

# Rows up to this length stay in registers between both halves of a step.
KEPT = 32


@intrinsic(prefer_literal=True)
def step(typing, A, i, B, j, weights, shrink, y, eta, k):
    """Move rows i and j for the entry y; return the residual e = aᵀb − y before that.

    a, b ← shrink ∘ (a − τ weights ∘ b), shrink ∘ (b − τ weights ∘ a), with τ = η e / (1 + η Σ weights (a² + b²)).
    """

    def codegen(context, builder, signature, given):
        T, n = context.get_value_type(A.dtype), k.literal_value // LANES
        V, whole = ir.VectorType(T, LANES), ir.IntType(64)
        size = A.dtype.bitwidth // 8
        fast = {"flags": ("fast",)}

        def data(kind, value):
            return context.make_array(kind)(context, builder, value).data

        def row(kind, matrix, at):
            offset = builder.mul(builder.sext(at, whole), ir.Constant(whole, k.literal_value))
            return builder.gep(data(kind, matrix), [offset])

        def place(pointer, part):
            return builder.bitcast(builder.gep(pointer, [ir.Constant(whole, LANES * part)]), V.as_pointer())

        def load(pointer, part):
            return builder.load(place(pointer, part), align=size)

        def spread(number):
            lanes = ir.VectorType(ir.IntType(32), LANES)
            one = builder.insert_element(ir.Constant(V, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, ir.Constant(V, ir.Undefined), ir.Constant(lanes, [0] * LANES))

        def plus(x, y):
            return builder.fadd(x, y, **fast)

        def times(x, y):
            return builder.fmul(x, y, **fast)

        def total(parts):
            while len(parts) > 1:
                parts = [plus(*parts[:2]), *parts[2:]]
            kind = ir.FunctionType(T, [T, V])
            name = f"llvm.vector.reduce.fadd.v{LANES}f{A.dtype.bitwidth}"
            summed = get_or_insert_function(builder.module, kind, name)
            return builder.call(summed, [ir.Constant(T, 0.0), *parts], fastmath=("fast",))

        a_at, b_at = row(A, *given[:2]), row(B, *given[2:4])
        w_at, h_at, (value, eta) = data(weights, given[4]), data(shrink, given[5]), given[6:8]
        products, squares, kept = [], [], []
        for part in range(n):
            a, b = load(a_at, part), load(b_at, part)
            kept.append((a, b))
            products.append(times(a, b))
            squares.append(times(load(w_at, part), plus(times(a, a), times(b, b))))
        residual = builder.fsub(total(products), value, **fast)
        damped = plus(ir.Constant(T, 1.0), times(eta, total(squares)))
        tau = spread(builder.fdiv(times(eta, residual), damped, **fast))
        for part in range(n):
            a, b = kept[part] if n * LANES <= KEPT else (load(a_at, part), load(b_at, part))
            pull, h = times(tau, load(w_at, part)), load(h_at, part)
            for at, one, other in ((a_at, a, b), (b_at, b, a)):
                moved = times(h, builder.fsub(one, times(pull, other), **fast))
                builder.store(moved, place(at, part), align=size)
        return residual

    if isinstance(k, types.IntegerLiteral):
        return A.dtype(A, i, B, j, weights, shrink, y, eta, k), codegen
    return None


@cache
def steps_of(k):
    """Return the loop for rows of k numbers, a multiple of `LANES`.

    It takes A, B, C-contiguous with k columns; weights, shrink, shape (k,); rows, columns, values of the entries in
    their order; where blocks of them begin, the first block and where to end; η; and the array that it sets to the
    sum of each block's squared residuals, each before its step. All numbers are of one precision.
    """

    @njit(cache=True, nogil=True)
    def run(A, B, weights, shrink, rows, columns, values, cuts, first, last, eta, squares):
        for block in range(first, last):
            total = 0.0
            for t in range(cuts[block], cuts[block + 1]):
                residual = step(A, rows[t], B, columns[t], weights, shrink, values[t], eta, k)
                total += residual * residual
            squares[block] = total

    return run
