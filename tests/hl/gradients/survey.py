"""Which functions have a gradient in a tile loop: 146 of PyTorch's, all of hl's own, and all operations of aten that
the tracer knows.

`python -m tests.hl.gradients.survey` writes the verdicts anew, to `survey.txt`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.hl.gradients.known_operations import calls
from tests.hl.gradients.texts import kernel_of
from tilewright import hl

GOLDEN = Path(__file__).with_name("survey.txt")
TORCH = "2.13"
"""The PyTorch whose derivatives the verdicts are of."""
METHODS = """
abs acos asin atan atanh acosh asinh cos cosh exp exp2 expm1 erf erfc erfinv lgamma digamma log log1p log2 log10 neg
reciprocal relu rsqrt sigmoid sin sinh sqrt tan tanh square sign round frac trunc deg2rad logit sinc i0 nan_to_num
softmax(-1) log_softmax(-1) sum(-1) sum() mean(-1) amax(-1) amin(-1) max(-1).values min(-1).values prod(-1) var(-1)
std(-1) norm(dim=-1) logsumexp(-1) cumsum(-1) cumprod(-1) logcumsumexp(-1) cummax(-1).values median(-1).values
sort(-1).values topk(5,-1).values flip(-1) roll(3,-1) transpose(0,1).sum(0) clamp(0.2,0.7) clamp_min(0.3) pow(2)
pow(2.5) unsqueeze(1).expand(-1,4,-1).sum(1) tril() triu() select(-1,3) narrow(-1,2,5) masked_fill(x>0.5,0)
repeat(1,2) std(-1,correction=0) nansum(-1) gather(1,(x*0).long()) index_select(1,torch.zeros_like(x[0]).long())
view(-1,5,3).sum(-1) split(8,1)[0] dist(x*2) aminmax(dim=-1).max renorm(2,0,1)
""".split()
FUNCTIONS = """
gelu(x) silu(x) softplus(x) elu(x) celu(x) selu(x) leaky_relu(x) hardtanh(x) hardswish(x) hardsigmoid(x) hardshrink(x)
softshrink(x) tanhshrink(x) softsign(x) logsigmoid(x) mish(x) relu6(x) glu(x[:,:14],-1) normalize(x) rms_norm(x,[15])
layer_norm(x,[15]) mse_loss(x,x*2) l1_loss(x,x*2) smooth_l1_loss(x,x*2) huber_loss(x,x*2)
binary_cross_entropy(x,x*0.5) binary_cross_entropy_with_logits(x,x*0.5) kl_div(x,x*0.5) cosine_similarity(x,x*x)
threshold(x,0.5,0.1) pad(x,(1,2)) dropout(x,0) softmin(x,-1) group_norm(x,5) prelu(x,x[0,:1])
""".split()
OPERATIONS = """
x+y x*y x-y x/y torch.maximum(x,y) torch.minimum(x,y) torch.atan2(x,y) torch.hypot(x,y) x**y torch.fmod(x,y)
torch.where(x>y,x,y) torch.lerp(x,y,0.3) torch.logaddexp(x,y) torch.addcmul(x,x,y) torch.addcdiv(x,x,y)
torch.xlogy(x,y) torch.cat([x,y],1) torch.stack([x,y],1).sum(1) x@y.T torch.einsum('ij,kj->ik',x,y)
torch.outer(x[:,0],y[0]) torch.fmax(x,y) torch.copysign(x,y) torch.ldexp(x,y) torch.dot(x[0],y[0]) x.mv(y[0])
""".split()
OWN = {  # of hl, and what the same is in PyTorch
    "hl.cumsum(x,1)": "x.cumsum(1)",
    "hl.cumsum(x,1,reverse=True)": "x.flip(1).cumsum(1).flip(1)",
    "hl.cumprod(x,1)": "x.cumprod(1)",
    "hl.dot(x,y.transpose(0,1))": "x@y.T",
    "hl.dot(x,y.transpose(0,1),acc=hl.zeros([4,4],dtype=torch.float64))": "x@y.T",
    "hl.reduce(torch.add,x,dim=1)": "x.sum(1)",
    "hl.reduce(torch.mul,x,dim=1)": "x.prod(1)",
    "hl.reduce(torch.maximum,x,dim=1)": "x.amax(1)",
    "hl.reduce(torch.minimum,x,dim=1)": "x.amin(1)",
    "hl.reduce(lambda a,b:a+b,x,dim=1)": "x.sum(1)",
    "hl.reduce(lambda a,b:a+b+a*b,x,dim=1)": "(1+x).prod(1)-1",
    "hl.associative_scan(torch.add,x,dim=1)": "x.cumsum(1)",
    "hl.associative_scan(torch.mul,x,dim=1)": "x.cumprod(1)",
    "hl.associative_scan(torch.maximum,x,dim=1)": "x.cummax(1).values",
    "hl.associative_scan(lambda a,b:a+b+a*b,x,dim=1)": "(1+x).cumprod(1)-1",
    "hl.join(x,y).sum(-1)": "x+y",
    "hl.split(x[:,:14].reshape(4,7,2))[1]": "x[:,:14].reshape(4,7,2)[...,1]",
    "hl.full([4,15],2.0,dtype=torch.float64)*x": "x*2",
    "x*hl.arange(0,15)": "x*torch.arange(15)",
    "hl.rand([4,15],7)*0+x": "x",
    "hl.inline_asm_elementwise('x','=r,r',[x],torch.float64,True,1)": "x",
    "hl.inline_triton('{0}+1.0',args=(x,),output_like=x)": "x+1.0",
}
SORTS = ("median", "sort", "topk", "kthvalue")
OTHERWISE = {  # PyTorch's own derivative has 1/6 in float32
    "F.hardsigmoid(x)": "F.relu6(x+3)/6",
    "torch.ops.aten.hardsigmoid(x)": "F.relu6(x+3)/6",
}
KNOWN = calls()
CASES = {
    **{text: text for text in ("x." + (one if "(" in one else one + "()") for one in METHODS)},
    **{text: text for text in ("F." + one for one in FUNCTIONS)},
    **{text: text for text in OPERATIONS},
    **OWN,
    **OTHERWISE,
    **{text: OTHERWISE.get(text, text) for text in KNOWN},
}
TOGETHER = 12  # functions in one kernel
TEXT = """
import torch
import torch.nn.functional as F
from tilewright import hl


@hl.kernel
def functions(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty([{count}, a.size(0)], dtype=a.dtype)
    for r in hl.grid(a.size(0)):
        x, y = a[r, :, :], b[r, :, :]
{stores}
    return out
"""


def is_sort(text: str) -> bool:
    """Whether a function sorts: hl sorts 32 bits."""
    return any(name in text for name in SORTS)


def data(above: bool, dtype: torch.dtype) -> list[torch.Tensor]:
    """Two batches of tiles of 4 by 15 numbers between 0 and 1, or between 1 and 2."""
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.rand(3, 4, 15, generator=generator, dtype=dtype) * 0.9 + 0.05 + above).requires_grad_() for _ in range(2)
    ]


def expected(text: str, above: bool, dtype: torch.dtype) -> list[torch.Tensor] | None:
    """The gradients of the sum of a function's sines, by eager PyTorch; None where that has no derivative."""
    args = data(above, dtype)
    function = eval(f"lambda x, y: torch.sin({text}).sum() + 0 * (x + y).sum()", {"torch": torch, "F": F})
    total = torch.stack([function(x, y) for x, y in zip(*args, strict=True)]).sum()
    try:
        found = torch.autograd.grad(total, args, allow_unused=True)
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise
        return None  # aminmax has a derivative since torch 2.13
    return [torch.zeros_like(arg) if grad is None else grad for arg, grad in zip(args, found, strict=True)]


def verdicts(texts: list[str]) -> list[str]:
    """For each function "right", "wrong" or "refused: " and why; in one kernel, which the first refusal ends."""
    above, dtype = "acosh" in texts[0], torch.float32 if is_sort(texts[0]) else torch.float64
    stores = "\n".join(
        f"        out[{at}, r] = torch.sin({text}).sum() + 0 * (x + y).sum()" for at, text in enumerate(texts)
    )
    kernel = kernel_of(TEXT.format(count=len(texts), stores=stores))
    args = data(above, dtype)
    try:
        out = kernel(*args)
    except hl.exc.NotDifferentiable as error:
        assert error.location is not None, texts
        return [f"refused: {error.message}"] * len(texts)
    except hl.exc.Error as error:
        return [f"forward: {str(error.message).splitlines()[0]}"] * len(texts)
    if not out.requires_grad:
        return ["wrong: no gradient and no error"] * len(texts)
    made = []
    for text, row in zip(texts, out, strict=True):
        found = torch.autograd.grad(row.sum(), args, retain_graph=True)
        theirs = expected(CASES[text], above, dtype)
        pairs = zip(found, found if theirs is None else theirs, strict=True)
        right = all(
            torch.allclose(
                one, other, rtol=1e-5 if is_sort(texts[0]) else 1e-8, atol=1e-8 if "polygamma" in text else 1e-10
            )
            for one, other in pairs
        )
        made.append("right" if right else "wrong")
    return made


def groups(golden: dict[str, str]) -> list[list[str]]:
    """The functions, those that have gradients several in a kernel."""
    right = [text for text in CASES if golden.get(text) == "right" and "acosh" not in text and not is_sort(text)]
    parts = [right[at : at + TOGETHER] for at in range(0, len(right), TOGETHER)]
    return parts + [[text] for text in CASES if text not in right]


def golden() -> dict[str, str]:
    """The verdicts that are committed."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines() if GOLDEN.exists() else []
    return dict(line.split("\t", 1) for line in lines)


def survey() -> dict[str, str]:
    """The verdict on every function, each alone."""
    return {text: verdicts([text])[0] for text in CASES}


if __name__ == "__main__":
    from tilewright.base.knobs import knobs

    knobs.runtime.interpret = True
    found: dict[str, Any] = survey()
    GOLDEN.write_text("".join(f"{text}\t{verdict}\n" for text, verdict in found.items()), encoding="utf-8")
    print(sum(verdict == "right" for verdict in found.values()), "of", len(found), "are right")
