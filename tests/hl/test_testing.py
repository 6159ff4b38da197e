"""What programs of examples and tests call around kernels."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl import testing


@hl.kernel(config=hl.Config(block_sizes=[16]))
def twice(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * 2
    return out


def test_code_and_output_take_choices_or_those_of_the_kernel():
    x = torch.randn(100)
    for choices, block in (({}, 16), ({"block_sizes": [32]}, 32)):
        code, found = testing.code_and_output(twice, (x,), **choices)
        assert f"tl.arange(0, {block})" in code and torch.equal(found, x * 2)
        assert torch.equal(testing.output_only(twice, (x,), **choices), x * 2)


def test_run_example_compares_and_times(monkeypatch, capsys):
    monkeypatch.setattr(testing, "_MILLISECONDS", 1.0)
    x = torch.randn(100)
    times = testing.run_example({"ours": twice}, {"torch": lambda x: x * 2, "sum": lambda x: x + x}, (x,))
    assert list(times) == ["ours", "torch", "sum"] and all(t > 0 for t in times.values())
    assert "ours" in capsys.readouterr().err
    with pytest.raises(AssertionError):
        testing.run_example(twice, lambda x: x * 3, (x,))
    with pytest.raises(AssertionError, match="returns 1 tensors, and the reference 2"):
        testing.run_example(twice, lambda x: (x, x), (x,))


def test_run_example_compares_gradients(monkeypatch):
    monkeypatch.setattr(testing, "_MILLISECONDS", 1.0)
    x = torch.randn(50, requires_grad=True)
    testing.run_example(lambda x: x * 2, lambda x: x + x, (x,), bwd=True)
    testing.run_example(lambda x: x * 2, lambda x: x + x, (x,), bwd=True, bwd_relative_l2=1e-6)
    with pytest.raises(AssertionError):
        testing.run_example(lambda x: x * 2 - x.detach(), lambda x: x, (x,), bwd=True)


def test_check_example_finds_files_of_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.setattr(testing, "EXAMPLES_DIR", tmp_path)
    text = "import torch\nfrom tilewright import hl\n\n@hl.kernel\ndef thrice(x):\n    out = torch.empty_like(x)\n"
    text += "    for t in hl.tile(x.size(0)):\n        out[t] = x[t] * 3\n    return out\n"
    (tmp_path / "an_example_of_tests.py").write_text(text, encoding="utf-8")
    x = torch.randn(20)
    code = testing.check_example("an_example_of_tests", (x,), x * 3, "thrice", static_shapes=False, block_size=4)
    assert "tl.arange(0, 4)" in code and "x_size_0" in code
    with pytest.raises(AssertionError):
        testing.check_example("an_example_of_tests", (x,), x * 5, "thrice", atol=1e-4)
    testing.check_example("an_example_of_tests", (x,), x * 5, "thrice", skip_accuracy=True)
    testing.check_example("an_example_of_tests", (x,), x * 5, "thrice", cos_sim=(0, 0.99), emit_code=False)


def test_comparisons_allow_what_they_say():
    expected = torch.arange(100.0) + 1
    found = expected.clone()
    found[7] += 3
    testing.assert_close_with_mismatch_tolerance(found, expected, max_mismatch_pct=0.01)
    for limit in ({"max_mismatch_pct": 0.0}, {"max_mismatched_abs_diff": 2.0}, {"max_abs_diff": 2.0}):
        with pytest.raises(AssertionError, match="allowed"):
            testing.assert_close_with_mismatch_tolerance(found, expected, **limit)
    with pytest.raises(AssertionError, match="relative"):
        testing.assert_close_with_mismatch_tolerance(found, expected, max_rel_diff=0.3)
    testing.assert_relative_l2_close(found, expected, 0.01)
    with pytest.raises(AssertionError, match="gradients: the relative difference"):
        testing.assert_relative_l2_close(found, expected, 1e-4, msg="gradients")
