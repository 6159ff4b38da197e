"""Members of a kernel that tools look up, and kernels that travel between processes."""

from __future__ import annotations

import pickle

import tilewright
import tilewright.language as tl
from tilewright.compile.walk import walk_of

SCALE = tl.constexpr(3)


@tilewright.jit(do_not_specialize=["n"])
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) * SCALE, i < n)


def test_members():
    assert scale.__globals__ is globals() and scale.module == __name__
    assert scale.constexprs == [3] and scale.do_not_specialize == ["n"]
    assert [p.num for p in scale.params] == [0, 1, 2, 3]
    assert scale.raw_src[0].startswith("def scale(") and scale.file_name == __file__
    assert open(__file__).read().splitlines()[scale.starting_line_number - 1].startswith("def scale(")
    assert {name for name, _ in scale.used_global_vals} == {"SCALE"}
    assert scale.hash == scale.cache_key and scale.repr(None) == "scale"


def test_a_kernel_that_was_taken_apart_keeps_its_text_and_parameters():
    @tilewright.jit
    def local(x_ptr, N: tl.constexpr):
        tl.store(x_ptr, N)

    text = local.src
    local.fn = local.__globals__ = local.used_global_vals = local.repr = None
    copy = pickle.loads(pickle.dumps(local))
    assert copy.fn is None and copy.src == text and copy.arg_names == ["x_ptr", "N"] and copy.constexprs == [1]


def test_a_compiled_kernel_loads_its_code_in_another_process():
    from tests.compile import test_introspection as module  # by the name under which pickle finds it

    made = tilewright.compile(tilewright.compiler.ASTSource(
        module.scale, {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 16}
    ))  # fmt: skip
    made.module = None
    copy = pickle.loads(pickle.dumps(made))
    copy._init_handles()
    import numpy as np

    x, out = np.arange(16, dtype=np.float32), np.zeros(16, dtype=np.float32)
    copy[1, 1, 1](x, out, 10, 16)
    assert out.tolist() == [3.0 * i if i < 10 else 0 for i in range(16)]
    copy.run(1, 1, 1, 0, copy.function, copy.packed_metadata, None, None, None, x, out, 12, 16)
    assert out[11] == 33 and out[12] == 0


def test_torch_is_told_what_is_written():
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    seen = []
    walk_of(scale, signature, {"BLOCK": 16}).walk(seen.append)
    names = [op.get_name() for op in seen]
    assert names == ["tt.load", "tt.store", "tt.return", "tt.func", "builtin.module"]
    block = seen[0].get_block()
    assert seen[0].get_operand(0) is block.get_argument(0) and seen[1].get_operand(0) is block.get_argument(1)
    assert block.get_num_arguments() == 3 and seen[3].get_region(0) is block.get_parent()
