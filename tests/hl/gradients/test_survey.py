"""No function yields a floating result without a gradient and without an error; the verdicts are committed."""

from __future__ import annotations

import pytest
import torch

from tests.hl.gradients import known_operations, survey
from tilewright.hl import language
from tilewright.hl.rows.files import RECIPES, ROWS
from tilewright.hl.trace.whole import COMPOSITES

FOUND = survey.golden()
CLASSES = {"AsyncCopyDescriptor", "ConstExpr", "StackTensor", "Tile"}
WITHOUT_FLOATS = """
__lshift__ __rshift__ all any argmax argmin count_nonzero eq ge gt isfinite isinf isnan isneginf isposinf le logical_and
logical_not logical_or logical_xor lt ne signbit
""".split()
"""Operations of PyTorch whose results are integers or truths."""
NEITHER = """
arange atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor barrier
breakpoint cdiv constexpr device_print dims dot_scaled float4_e2m1fn_x2_to_float32 grid jagged_tile load
load_bfloat16_x16_to_float16 load_float4_e2m1fn_x16_to_float16 make_async_remote_copy
next_power_of_2 pdl_launch_dependents pdl_wait rand4x randint register_block_size register_tunable
remote_barrier specialize stacktensor_like static_range store subscript tile tile_begin tile_block_size
tile_count tile_end tile_id tile_index triton_kernel zeros
""".split()
"""Names of hl that compute nothing of floats in a loop, or of which other tests ask what becomes of their gradients."""


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("texts", survey.groups(FOUND), ids=lambda texts: texts[0])
def test_verdicts(texts):
    found = dict(zip(texts, survey.verdicts(texts), strict=True))
    other = [] if torch.__version__.startswith(survey.TORCH) else [text for text in texts if found[text] != FOUND[text]]
    for text in other:  # what this PyTorch has no derivative of is refused, with all that is in one kernel with it
        found[text] = survey.verdicts([text])[0]
        assert found[text].startswith(("refused: ", FOUND[text]))
    agreed = [text for text in texts if text not in other]
    assert all(found[text] == FOUND[text] for text in agreed), "python -m tests.hl.gradients.survey"


def test_most_are_right_and_nothing_is_wrong():
    of_pytorch = [verdict for text, verdict in FOUND.items() if text not in survey.OWN]
    assert of_pytorch.count("right") >= 140 and len(of_pytorch) >= 146
    assert all(verdict == "right" or verdict.startswith(("refused: ", "forward: ")) for verdict in FOUND.values())
    assert FOUND.keys() == survey.CASES.keys()


def test_what_pytorch_cuts_in_silence_is_refused():
    cut = [text for text in survey.KNOWN if known_operations.is_cut(text)]
    assert len(cut) > 5 and all(FOUND[text].startswith("refused: ") for text in cut)


def test_every_operation_that_the_tracer_knows_is_in_the_survey():
    """One that is added has a call here, by its schema or by hand, before it can be cut from the tape in silence."""
    names = {name for name in {*ROWS, *RECIPES} | COMPOSITES if hasattr(torch.ops.aten, name)}
    found = {text.removeprefix("torch.ops.aten.").split("(")[0] for text in survey.KNOWN}
    rest = names - found - known_operations.INTEGERS - set(known_operations.DRAWN)
    assert rest == set(WITHOUT_FLOATS)


def test_every_name_of_hl_is_in_the_survey_or_computes_nothing_of_floats():
    called = {name for name in language.__all__ if any(f"hl.{name}(" in text for text in survey.CASES)}
    assert called | set(NEITHER) >= set(language.__all__) - CLASSES
