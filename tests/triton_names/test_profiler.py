"""`triton.profiler` measures and prints, and `triton.tools.LinearLayout` is there, where Tilewright poses."""

from __future__ import annotations

from tests.triton_names.test_switch import POSE, run

KERNELS = """
import triton
import triton.language as tl

def facts(grid, kernel, args):
    return {"name": f"add_{args['n']}", "bytes": args["n"] * 8}

@triton.jit(launch_metadata=facts)
def add(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)

@triton.jit
def fill(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 2.0)
"""


PROFILED = """
import json, time
import numpy
import triton.profiler as proton
from triton.profiler import viewer
from kernels import add, fill
x = numpy.zeros(64, numpy.float32)

@proton.scope("decorated")
def work():
    fill[(1,)](x, B=64)

work()  # nobody measures: nothing stops
session = proton.start(OWN, hook="triton", backend="instrumentation")
began = time.perf_counter_ns()
with proton.scope("outer", {"flops": 10}):
    add[(1,)](x, 64, B=64)
    with proton.state("warm"):
        work()
    with proton.cpu_timed_scope("inner"):
        for _ in range(3):
            add[(1,)](x, 33, B=64)
    proton.deactivate(session)
    fill[(1,)](x, B=64)
    proton.activate(session)
assert proton.enter_scope("by hand", metrics={"bytes": 5}) > 0
fill[(1,)](x, B=64)
proton.exit_scope()

@proton.profile(name=SECOND)
def profiled():
    fill[(1,)](x, B=64)
    return 7

assert profiled() == 7
took = time.perf_counter_ns() - began
proton.finalize(session)
proton.finalize()
assert not proton.start.__globals__["knobs"].runtime.launch_enter_hook.calls
work()
tree = viewer.read(OWN + ".hatchet")

def shape(node):
    return node["frame"]["name"], node["metrics"].get("count", 0), [shape(child) for child in node["children"]]

warm = ("warm", 0, [("fill", 1, [])])
below = [("add_64", 1, []), ("decorated", 0, [warm]), ("inner", 0, [("add_33", 3, [])])]
assert shape(tree) == ("ROOT", 0, [("outer", 0, below), ("by hand", 0, [("fill", 1, [])]),
                                ("fill", 1, [])]), shape(tree)
outer, inner = tree["children"][0], tree["children"][0]["children"][2]
assert outer["metrics"] == {"flops": 10} and inner["metrics"]["cpu_time (ns)"] > 0
assert inner["children"][0]["metrics"]["bytes"] == 3 * 33 * 8
from tilewright.tuning.profile_view import value_of
assert 0 < value_of(tree, "time/ns") <= took and value_of(tree, "count") == 7
assert value_of(tree, "avg_time/us") * 7 * 1e3 - value_of(tree, "time/ns") < 1
assert value_of(viewer.read(SECOND + ".hatchet"), "count") == 1
viewer.main(["-m", "time/ms,count", OWN + ".hatchet"])
viewer.show_metrics(OWN + ".hatchet")
"""


def test_launches_are_timed_by_scopes(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    names = f"OWN, SECOND = {str(tmp_path / 'deep' / 'own')!r}, {str(tmp_path / 'second')!r}\n"
    lines = run(POSE + names + PROFILED, FIRST=str(tmp_path)).splitlines()
    assert lines[0].split() == ["time/ms", "count"] and lines[1].split()[1:] == ["7.000", "ROOT"]
    assert "- cpu_time" in lines and "- bytes" in lines


def test_a_launch_that_raises_does_not_spoil_the_profile(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    run(POSE + f"""if 1:
        import numpy
        import triton.profiler as proton
        from kernels import fill
        session = proton.start({str(tmp_path / "own")!r})
        x = numpy.zeros(64, numpy.float32)
        for B in (64, "no size", 64):
            try:
                fill[(1,)](x, B=B)
            except Exception:
                assert B != 64
        for wrong in (lambda: proton.finalize(99), lambda: proton.finalize(session, "other")):
            try:
                wrong()
            except tilewright.TilewrightError:
                continue
            raise AssertionError
        proton.finalize()
        [kernel] = proton.viewer.read({str(tmp_path / "own.hatchet")!r})["children"]
        assert kernel["metrics"]["count"] == 2, kernel
    """, FIRST=str(tmp_path))  # fmt: skip


def test_linear_layouts():
    run(POSE + """if 1:
        from triton.tools import LinearLayout
        tile = LinearLayout.from_bases([("reg", [[0, 1], [4, 0]]), ("lane", [[1, 0], [2, 0], [0, 2]])], ["row", "col"])
        assert tile.bases == [("reg", [[0, 1], [4, 0]]), ("lane", [[1, 0], [2, 0], [0, 2]])]
        assert tile.out_dims == [("row", 8), ("col", 4)] and (tile.num_in_dims, tile.num_out_dims) == (2, 2)
        assert (tile.get_in_dim_names(), tile.get_out_dim_names()) == (["reg", "lane"], ["row", "col"])
        assert tile.apply({"reg": 3, "lane": 5}) == {"row": 5, "col": 3}
        assert tile.apply([("reg", 3), ("lane", 5)]) == [("row", 5), ("col", 3)]
        assert tile.is_surjective() and tile.is_injective() and tile.is_invertible()
        back = tile.invert()
        for row in range(8):
            for col in range(4):
                assert tile.apply(back.apply({"row": row, "col": col})) == {"row": row, "col": col}
        one = LinearLayout.identity_1d
        assert tile.compose(back) == one(4, "reg", "reg") * one(8, "lane", "lane")
        assert tile.invert_and_compose(tile).apply({"reg": 1, "lane": 6}) == {"reg": 1, "lane": 6}
        strided, zero = LinearLayout.strided_1d(4, 2, "i", "o"), LinearLayout.zeros_1d(4, "i", "o", outDimSize=2)
        assert [strided.apply({"i": i})["o"] for i in range(4)] == [0, 2, 4, 6] and not strided.is_surjective()
        assert strided.get_matrix_view() == [[0, 0], [1, 0], [0, 1]]
        assert not zero.is_surjective() and not zero.is_injective() and zero.get_matrix_view() == [[0, 0]]
        assert strided.pseudoinvert().apply({"o": 6}) == {"i": 3} and strided != zero
        both = LinearLayout.identity_1d(2, "i", "o")
        both *= LinearLayout.identity_1d(4, "i", "o")
        assert both == LinearLayout.identity_1d(8, "i", "o") and LinearLayout() == LinearLayout()
        assert str(tile).splitlines()[0] == " - reg=1 -> (0, 1)" and "row (size 8)" in repr(tile)
        threads = [("register", [[0, 1]]), ("lane", [[1, 0]]), ("warp", [[0, 2]])]
        held = LinearLayout.from_bases(threads, ["dim0", "dim1"])
        assert [line.split() for line in held.get_distributed_view().splitlines()] == [
            ["0", "1", "2", "3"], ["0", "T0:0", "T0:1", "T2:0", "T2:1"], ["1", "T1:0", "T1:1", "T3:0", "T3:1"]]
        assert held.get_distributed_view(True).splitlines()[3] == "register=1, lane=1, warp=0: (1, 1)"
        swizzled = LinearLayout.from_bases([("offset", [[0, 1], [1, 1]])], ["dim0", "dim1"])
        assert [line.split() for line in swizzled.get_shared_view(useHWPointOfView=False).splitlines()[1:]] == [
            ["0", "0", "1"], ["1", "3", "2"]]
        assert swizzled.get_shared_view(True).splitlines()[2] == "offset=2: (1, 1)"
        sparse = LinearLayout.from_bases([("i", [[2]])], ["o"], [8], require_surjective=False)
        assert sparse.out_dims == [("o", 8)]
        for wrong in (
            lambda: LinearLayout.from_bases([("i", [[2]])], ["o"]),
            lambda: LinearLayout.from_bases([("i", [[2]])], ["o"], require_surjective=False),
            lambda: LinearLayout.from_bases([("i", [[1]])], ["o"], [2, 2]),
            lambda: LinearLayout.identity_1d(3, "i", "o"),
            lambda: tile.apply({"reg": 1}),
            lambda: tile.apply({"reg": 4, "lane": 0}),
            lambda: strided.invert(),
            lambda: held.get_shared_view(),
            lambda: swizzled.get_distributed_view(),
        ):
            try:
                wrong()
            except ValueError:
                continue
            raise AssertionError
    """)  # fmt: skip


SCOPES = """
import triton
import triton.language as tl
import triton.profiler.language as pl

@triton.jit
def helper(x, i, MANY: tl.constexpr):
    with pl.scope("early"):
        if MANY == 1:
            return tl.load(x + i)
        v = tl.load(x + i) * 2
    return v

@triton.jit
def scoped(x, y, n, MANY: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    pl.enter_scope("sums")
    total = tl.zeros([B], tl.float32)
    for k in range(n):
        with pl.scope("add") as scope, pl.scope("inner"):
            if k % 2 == 1:
                continue
            total += helper(x, i + k, MANY)
            if k > 4:
                break
    pl.exit_scope("sums")
    pl.record(True, "store")
    with pl.scope("store"):
        tl.store(y + i, total)
    pl.record(False, "store")
"""


def test_scopes_within_kernels(tmp_path):
    (tmp_path / "scopes.py").write_text(SCOPES)
    for interpreted in ("0", "1"):
        run(POSE + """if 1:
            import warnings
            import numpy
            import triton.profiler.language as pl
            from scopes import scoped
            x, y = numpy.arange(16, dtype=numpy.float32), numpy.zeros(8, numpy.float32)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                pl.enable_semantic("triton")
                for MANY in (1, 2):
                    scoped[(1,)](x, y, 9, MANY, B=8)
                    assert (y == MANY * sum(x[k : k + 8] for k in (0, 2, 4, 6))).all(), y
                pl.disable_semantic("triton")
            assert [str(w.message) for w in told if "scopes" in str(w.message)] == [
                "scopes within kernels are not measured here: launches are"], told
        """, FIRST=str(tmp_path), TRITON_INTERPRET=interpreted)  # fmt: skip
