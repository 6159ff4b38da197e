"""Many matrix products of different sizes in one launch.

The sizes, row strides and addresses of the operands lie in small arrays in memory: an address is an int64 that
the kernel turns into a pointer. A fixed number of programs takes the output tiles of all products in turn, so that a
small product does not leave most of the machine idle.
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def grouped_matmul_kernel(
    a_addresses, b_addresses, c_addresses, sizes, strides, n_problems,
    NUM_PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ELEMENT: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    first_tile = 0  # of the problem at hand, counted over all problems
    for problem in range(n_problems):
        M = tl.load(sizes + problem * 3)
        N = tl.load(sizes + problem * 3 + 1)
        K = tl.load(sizes + problem * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        n_tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        while tile >= first_tile and tile < first_tile + n_tiles:
            stride_a = tl.load(strides + problem * 3)
            stride_b = tl.load(strides + problem * 3 + 1)
            stride_c = tl.load(strides + problem * 3 + 2)
            a_ptr = tl.load(a_addresses + problem).to(tl.pointer_type(ELEMENT))
            b_ptr = tl.load(b_addresses + problem).to(tl.pointer_type(ELEMENT))
            c_ptr = tl.load(c_addresses + problem).to(tl.pointer_type(ELEMENT))
            index = tile - first_tile
            rows = index // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            cols = index % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for start in range(0, K, BLOCK_K):
                inner = start + tl.arange(0, BLOCK_K)
                a_mask = (rows[:, None] < M) & (inner[None, :] < K)
                b_mask = (inner[:, None] < K) & (cols[None, :] < N)
                a = tl.load(a_ptr + rows[:, None] * stride_a + inner[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + inner[:, None] * stride_b + cols[None, :], mask=b_mask, other=0.0)
                acc = tl.dot(a, b, acc)
            c_mask = (rows[:, None] < M) & (cols[None, :] < N)
            tl.store(c_ptr + rows[:, None] * stride_c + cols[None, :], acc.to(ELEMENT), mask=c_mask)
            tile += NUM_PROGRAMS
        first_tile += n_tiles


def grouped_matmul(pairs: list[tuple[torch.Tensor, torch.Tensor]], num_programs: int = 16) -> list[torch.Tensor]:
    """Return ``a @ b`` for every pair; all matrices have one dtype and unit stride along their rows."""
    element = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[pairs[0][0].dtype]
    outs = [torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device) for a, b in pairs]
    triples = [(a, b, out) for (a, b), out in zip(pairs, outs, strict=True)]
    addresses = [torch.tensor([t[place].data_ptr() for t in triples], dtype=torch.int64) for place in range(3)]
    sizes = torch.tensor([(a.shape[0], b.shape[1], a.shape[1]) for a, b in pairs], dtype=torch.int32)
    strides = torch.tensor([[matrix.stride(0) for matrix in triple] for triple in triples], dtype=torch.int32)
    grouped_matmul_kernel[(num_programs,)](
        *addresses, sizes, strides, len(pairs),
        NUM_PROGRAMS=num_programs, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, ELEMENT=element,
    )  # fmt: skip
    return outs


def main() -> None:
    torch.manual_seed(0)
    # A GPU multiplies float32 in tf32, with 10 bits of mantissa, unless a product asks for "ieee".
    single = 1e-6 if torch.get_default_device().type == "cpu" else 2e-3
    shapes = ((256, 256, 256), (128, 65, 33), (1, 300, 64), (200, 130, 311))
    for dtype, tolerance in ((torch.float32, single), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
        pairs = [(torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)) for m, n, k in shapes]
        error = 0.0
        for (a, b), c in zip(pairs, grouped_matmul(pairs), strict=True):
            reference = a.double() @ b.double()
            error = max(error, ((c.double() - reference).abs().max() / reference.abs().max()).item())
        print(f"grouped matmul  {len(shapes)} products  {dtype!s:<14}  max error {error:.1e} of the largest element")
        assert error <= tolerance, "grouped matmul differs from the float64 reference"


if __name__ == "__main__":
    main()
