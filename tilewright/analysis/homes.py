"""Of which arguments an address is one, moved by offsets: whose memory an access has to stay in.

`origins.py` asks which arguments an address depends on, and looks through loads; here an address that was read from
memory has no home, as nobody said which array it belongs to.
"""

from __future__ import annotations

from xdsl.ir import BlockArgument, SSAValue

from tilewright.analysis.flow import sources_of
from tilewright.analysis.origins import is_parameter
from tilewright.base.order import reached
from tilewright.ir.traits import is_view
from tilewright.ir.types import element_type, is_pointer, pointee_bytes
from tilewright.ir.values import defining_op
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.casts import BitcastOp
from tilewright.ops.elementwise import SelectOp
from tilewright.ops.elementwise_pointer import AddPtrOp

_MOVES = (AddPtrOp, BitcastOp, SelectOp, SplatOp)


def homes_of(address: SSAValue) -> list[SSAValue]:
    """The parameters of the kernel of which an address may be one, moved; none where it may be something else."""
    found = list[SSAValue]()
    for value in reached([address], lambda value: _sources(value) or ()):
        sources = _sources(value)
        if sources is None:
            return []
        if not sources:
            found.append(value)
    return sorted(found, key=lambda value: value.index if isinstance(value, BlockArgument) else -1)


def _sources(value: SSAValue) -> list[SSAValue] | None:
    """Addresses that an address may be made of; none of a parameter, None of anything else."""
    carried = sources_of(value)
    if carried is not None:
        return carried
    op = defining_op(value)
    if op is None:
        return [] if is_parameter(value) else None
    if not (isinstance(op, _MOVES) or is_view(op)):
        return None
    return [operand for operand in op.operands if is_pointer(element_type(operand.type))] or None


def is_direct(address: SSAValue, home: SSAValue) -> bool:
    """Whether an address is a parameter moved by whole elements, and nothing else, on a way without branches."""
    size = pointee_bytes(home.type)
    while address is not home:
        op = defining_op(address)
        if isinstance(op, AddPtrOp):
            if pointee_bytes(address.type) != size:
                return False
        elif (
            op is None
            or len(op.operands) != 1
            or isinstance(op, BitcastOp)
            or not (isinstance(op, SplatOp) or is_view(op))
            or not is_pointer(element_type(op.operands[0].type))
        ):
            return False
        address = op.operands[0]
    return True
