"""A linear layer as one Triton kernel, which `kernels.activate` imports if Triton is there."""

import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

LARGE = 1 << 22  # numbers in a result; from here on larger tiles, which read less, fill the GPU


@triton.jit  # type: ignore[untyped-decorator]  # Triton's
def _linear(  # type: ignore[no-untyped-def]  # pointers and numbers, as Triton finds them
    x, weight, bias, y,
    member_of_x, member_of_weight, member_of_bias,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
    activation: tl.constexpr,
    tile: tl.constexpr, step: tl.constexpr,
) -> None:  # fmt: skip
    """One tile of y[m] = activation(x[m] W[m] + b[m]) of a member m; W is stored [out, in]."""
    member = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * tile + tl.arange(0, tile)
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    k = tl.arange(0, step)
    of_x = x + member * member_of_x + row[:, None] * depth + k[None, :]
    of_weight = weight + member * member_of_weight + k[:, None] + column[None, :] * depth
    total = tl.zeros((tile, tile), tl.float32)
    for begin in range(0, depth, step):
        left = depth - begin
        a = tl.load(of_x + begin, (row[:, None] < rows) & (k[None, :] < left), 0.0)
        b = tl.load(of_weight + begin, (k[:, None] < left) & (column[None, :] < columns), 0.0)
        total = tl.dot(a, b, total, input_precision="tf32")
    total += tl.load(bias + member * member_of_bias + column, column < columns, 0.0)[None, :]
    if activation == "elu":
        total = tl.where(total > 0, total, tl.exp(total) - 1)
    elif activation == "relu":
        total = tl.where(total < 0, 0.0, total)  # NaN stays
    to = y + member * (rows * columns) + row[:, None] * columns + column[None, :]
    tl.store(to, total, (row[:, None] < rows) & (column[None, :] < columns))


@triton_op("td7::linear", mutates_args={})
def linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    """activation(x W + b): [S, B, n] by [S, n, w], stored [S, w, n], and [S, w]."""
    members, rows, depth = x.shape
    columns = weight.shape[2]
    x = x.contiguous()
    y = x.new_empty(members, rows, columns)
    is_large = members * rows * columns >= LARGE
    tile, warps, stages = (128, 8, 3) if is_large else (64, 4, 4)
    grid = (triton.cdiv(rows, tile), triton.cdiv(columns, tile), members)
    wrap_triton(_linear)[grid](
        x, weight, bias, y,
        x.stride(0), weight.stride(0), bias.stride(0),
        rows, columns, depth, activation,
        tile=tile, step=32, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y
