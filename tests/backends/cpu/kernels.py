"""Texts of tile IR kernels for the tests of the CPU back end, with sizes and types as parameters."""

from __future__ import annotations


def matmul_text(
    bm: int,
    bn: int,
    bk: int,
    elem: str = "f32",
    acc: str = "f32",
    out: str = "f32",
    *,
    mask_k: bool = True,
    group: int = 4,
) -> str:
    """`C[M, N] = A[M, K] @ B[K, N]`, row-major, unit column strides, grouped program order.

    Parameters of the kernel: a, b, c, M, N, K, row stride of a, of b, of c.
    """
    zero = "0.000000e+00" if acc.startswith("f") else "0"
    nothing = "0.000000e+00" if elem[0] in "fb" else "0"
    store = f"""
    %r = {"arith.truncf" if out[0] in "fb" else "arith.trunci"} %acc#1 : tensor<{bm}x{bn}x{acc}> to tensor<{bm}x{bn}x{out}>
    tt.store %pc, %r, %mc : tensor<{bm}x{bn}x!tt.ptr<{out}>>"""
    if out == acc:
        store = f"\n    tt.store %pc, %acc#1, %mc : tensor<{bm}x{bn}x!tt.ptr<{out}>>"
    k_masks = f"""
      %left = arith.subi %K, %k0 : i32
      %lefta = tt.splat %left : i32 -> tensor<1x{bk}xi32>
      %kma = arith.cmpi slt, %ka, %lefta : tensor<1x{bk}xi32>
      %kmab = tt.broadcast %kma : tensor<1x{bk}xi1> -> tensor<{bm}x{bk}xi1>
      %am = arith.andi %amr, %kmab : tensor<{bm}x{bk}xi1>
      %leftb = tt.splat %left : i32 -> tensor<{bk}x1xi32>
      %kmb = arith.cmpi slt, %kb, %leftb : tensor<{bk}x1xi32>
      %kmbb = tt.broadcast %kmb : tensor<{bk}x1xi1> -> tensor<{bk}x{bn}xi1>
      %bm = arith.andi %bmc, %kmbb : tensor<{bk}x{bn}xi1>"""
    if not mask_k:
        k_masks = ""
    am, bmask = ("%am", "%bm") if mask_k else ("%amr", "%bmc")
    return f"""
module {{
  tt.func public @matmul(%a: !tt.ptr<{elem}>, %b: !tt.ptr<{elem}>, %c: !tt.ptr<{out}>,
      %M: i32, %N: i32, %K: i32, %sa: i32, %sb: i32, %sc: i32) attributes {{noinline = false}} {{
    %zero = arith.constant dense<{zero}> : tensor<{bm}x{bn}x{acc}>
    %na = arith.constant dense<{nothing}> : tensor<{bm}x{bk}x{elem}>
    %nb = arith.constant dense<{nothing}> : tensor<{bk}x{bn}x{elem}>
    %c0 = arith.constant 0 : i32
    %cbm1 = arith.constant {bm - 1} : i32
    %cbn1 = arith.constant {bn - 1} : i32
    %cbm = arith.constant {bm} : i32
    %cbn = arith.constant {bn} : i32
    %cbk = arith.constant {bk} : i32
    %cg = arith.constant {group} : i32
    %adv = arith.constant dense<{bk}> : tensor<{bm}x{bk}xi32>
    %pid = tt.get_program_id x : i32
    %m1 = arith.addi %M, %cbm1 : i32
    %pm = arith.divsi %m1, %cbm : i32
    %n1 = arith.addi %N, %cbn1 : i32
    %pn = arith.divsi %n1, %cbn : i32
    %width = arith.muli %pn, %cg : i32
    %gid = arith.divsi %pid, %width : i32
    %first = arith.muli %gid, %cg : i32
    %rest = arith.subi %pm, %first : i32
    %rows = arith.minsi %rest, %cg : i32
    %in = arith.remsi %pid, %width : i32
    %im = arith.remsi %in, %rows : i32
    %i = arith.addi %first, %im : i32
    %j = arith.divsi %in, %rows : i32
    %rm = tt.make_range {{end = {bm} : i32, start = 0 : i32}} : tensor<{bm}xi32>
    %rn = tt.make_range {{end = {bn} : i32, start = 0 : i32}} : tensor<{bn}xi32>
    %rk = tt.make_range {{end = {bk} : i32, start = 0 : i32}} : tensor<{bk}xi32>
    %i0 = arith.muli %i, %cbm : i32
    %j0 = arith.muli %j, %cbn : i32
    %i0s = tt.splat %i0 : i32 -> tensor<{bm}xi32>
    %om = arith.addi %i0s, %rm : tensor<{bm}xi32>
    %j0s = tt.splat %j0 : i32 -> tensor<{bn}xi32>
    %on = arith.addi %j0s, %rn : tensor<{bn}xi32>
    %om2 = tt.expand_dims %om {{axis = 1 : i32}} : tensor<{bm}xi32> -> tensor<{bm}x1xi32>
    %on2 = tt.expand_dims %on {{axis = 0 : i32}} : tensor<{bn}xi32> -> tensor<1x{bn}xi32>
    %ka = tt.expand_dims %rk {{axis = 0 : i32}} : tensor<{bk}xi32> -> tensor<1x{bk}xi32>
    %kb = tt.expand_dims %rk {{axis = 1 : i32}} : tensor<{bk}xi32> -> tensor<{bk}x1xi32>
    %sas = tt.splat %sa : i32 -> tensor<{bm}x1xi32>
    %oa = arith.muli %om2, %sas : tensor<{bm}x1xi32>
    %as = tt.splat %a : !tt.ptr<{elem}> -> tensor<{bm}x1x!tt.ptr<{elem}>>
    %a1 = tt.addptr %as, %oa : tensor<{bm}x1x!tt.ptr<{elem}>>, tensor<{bm}x1xi32>
    %a2 = tt.broadcast %a1 : tensor<{bm}x1x!tt.ptr<{elem}>> -> tensor<{bm}x{bk}x!tt.ptr<{elem}>>
    %ka2 = tt.broadcast %ka : tensor<1x{bk}xi32> -> tensor<{bm}x{bk}xi32>
    %a3 = tt.addptr %a2, %ka2 : tensor<{bm}x{bk}x!tt.ptr<{elem}>>, tensor<{bm}x{bk}xi32>
    %sbs = tt.splat %sb : i32 -> tensor<{bk}x1xi32>
    %ob = arith.muli %kb, %sbs : tensor<{bk}x1xi32>
    %bs = tt.splat %b : !tt.ptr<{elem}> -> tensor<{bk}x1x!tt.ptr<{elem}>>
    %b1 = tt.addptr %bs, %ob : tensor<{bk}x1x!tt.ptr<{elem}>>, tensor<{bk}x1xi32>
    %b2 = tt.broadcast %b1 : tensor<{bk}x1x!tt.ptr<{elem}>> -> tensor<{bk}x{bn}x!tt.ptr<{elem}>>
    %on3 = tt.broadcast %on2 : tensor<1x{bn}xi32> -> tensor<{bk}x{bn}xi32>
    %b3 = tt.addptr %b2, %on3 : tensor<{bk}x{bn}x!tt.ptr<{elem}>>, tensor<{bk}x{bn}xi32>
    %Ms = tt.splat %M : i32 -> tensor<{bm}x1xi32>
    %mm = arith.cmpi slt, %om2, %Ms : tensor<{bm}x1xi32>
    %Ns = tt.splat %N : i32 -> tensor<1x{bn}xi32>
    %mn = arith.cmpi slt, %on2, %Ns : tensor<1x{bn}xi32>
    %amr = tt.broadcast %mm : tensor<{bm}x1xi1> -> tensor<{bm}x{bk}xi1>
    %bmc = tt.broadcast %mn : tensor<1x{bn}xi1> -> tensor<{bk}x{bn}xi1>
    %acc:3 = scf.for %k0 = %c0 to %K step %cbk iter_args(%pa = %a3, %s = %zero, %pb = %b3) -> (tensor<{bm}x{bk}x!tt.ptr<{elem}>>, tensor<{bm}x{bn}x{acc}>, tensor<{bk}x{bn}x!tt.ptr<{elem}>>)  : i32 {{{k_masks}
      %x = tt.load %pa, {am}, %na : tensor<{bm}x{bk}x!tt.ptr<{elem}>>
      %y = tt.load %pb, {bmask}, %nb : tensor<{bk}x{bn}x!tt.ptr<{elem}>>
      %d = tt.dot %x, %y, %s : tensor<{bm}x{bk}x{elem}> * tensor<{bk}x{bn}x{elem}> -> tensor<{bm}x{bn}x{acc}>
      %pa1 = tt.addptr %pa, %adv : tensor<{bm}x{bk}x!tt.ptr<{elem}>>, tensor<{bm}x{bk}xi32>
      %stepb = arith.muli %sb, %cbk : i32
      %stepbs = tt.splat %stepb : i32 -> tensor<{bk}x{bn}xi32>
      %pb1 = tt.addptr %pb, %stepbs : tensor<{bk}x{bn}x!tt.ptr<{elem}>>, tensor<{bk}x{bn}xi32>
      scf.yield %pa1, %d, %pb1 : tensor<{bm}x{bk}x!tt.ptr<{elem}>>, tensor<{bm}x{bn}x{acc}>, tensor<{bk}x{bn}x!tt.ptr<{elem}>>
    }}
    %scs = tt.splat %sc : i32 -> tensor<{bm}x1xi32>
    %oc = arith.muli %om2, %scs : tensor<{bm}x1xi32>
    %cs = tt.splat %c : !tt.ptr<{out}> -> tensor<{bm}x1x!tt.ptr<{out}>>
    %c1 = tt.addptr %cs, %oc : tensor<{bm}x1x!tt.ptr<{out}>>, tensor<{bm}x1xi32>
    %c2 = tt.broadcast %c1 : tensor<{bm}x1x!tt.ptr<{out}>> -> tensor<{bm}x{bn}x!tt.ptr<{out}>>
    %on4 = tt.broadcast %on2 : tensor<1x{bn}xi32> -> tensor<{bm}x{bn}xi32>
    %pc = tt.addptr %c2, %on4 : tensor<{bm}x{bn}x!tt.ptr<{out}>>, tensor<{bm}x{bn}xi32>
    %mcm = tt.broadcast %mm : tensor<{bm}x1xi1> -> tensor<{bm}x{bn}xi1>
    %mcn = tt.broadcast %mn : tensor<1x{bn}xi1> -> tensor<{bm}x{bn}xi1>
    %mc = arith.andi %mcm, %mcn : tensor<{bm}x{bn}xi1>{store}
    tt.return
  }}
}}
"""
