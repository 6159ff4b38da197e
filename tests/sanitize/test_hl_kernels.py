"""Faults of kernels of `hl` are told at the line that the user wrote, not at one of generated code."""

import torch

import tilewright.sanitize
from tilewright import hl


@hl.kernel
def racing(x):
    total = torch.zeros([1])
    for tile in hl.tile(x.size(0), block_size=16):
        total[0] = total[0] + x[tile].sum()  # a race
    return total


@hl.kernel
def scattered(x, places):
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0), block_size=16):
        out[places[tile]] = x[tile]  # lanes
    return out


@hl.kernel
def half_written(x):
    between = torch.empty([x.size(0) + 5])
    for tile in hl.tile(x.size(0)):
        between[tile] = x[tile]
    out = torch.empty([x.size(0) + 5])
    for tile in hl.tile(between.size(0)):
        out[tile] = between[tile] * 2  # uninitialised
    return out


def test_a_race():
    with tilewright.sanitize.checking("races") as found:
        racing(torch.randn(400))
    assert found.faults and {fault.kind for fault in found.faults} == {"race"}
    for fault in found.faults:
        assert fault.place.file == __file__ and "# a race" in fault.place.source_line()
        assert fault.other.lines == (fault.place.line,)
        assert "# a race" in fault.render() and fault.record()["line"] == fault.place.line


def test_lanes():
    with tilewright.sanitize.checking("races") as found:
        scattered(torch.randn(40), torch.zeros(40, dtype=torch.int64))
    assert {"lanes", "race"} == {fault.kind for fault in found.faults}
    assert all("# lanes" in fault.place.source_line() for fault in found.faults)


def test_what_the_host_code_of_a_kernel_has_made_empty():
    with tilewright.sanitize.checking("uninitialised") as found:
        half_written(torch.randn(100))
    (fault,) = found.faults
    assert (fault.kind, fault.argument, fault.index) == ("uninitialised", "between", 0)
    assert fault.times == 5 and "# uninitialised" in fault.place.source_line()
