"""docs/hl_errors.md shows what the mistakes on it give today, and one for every class of error that kernels raise."""

from __future__ import annotations

import inspect

import pytest

from tilewright.hl import exc
from tilewright.tools import error_page, gallery, gallery_hl

# Roots of others, names that nothing raises here, and what a page cannot show.
ELSEWHERE = {"Error", "InternalError", "TritonError", "ClosuresNotSupported", "TopLevelStatementBetweenLoops"}
ELSEWHERE |= {"TracerNeeded", "ConstantNeeded"}  # in tests/torch/test_hl.py and test_floats.py
ELSEWHERE |= {"WrongDeviceError"}  # in test_misuse.py
# Those of tuning and of choices of a program are in test_tuning.py and test_configs.py.
ELSEWHERE |= {
    "AutotuneError",
    "NoConfigFound",
    "RegisterTunableArgTypes",
    "TunableNameConflict",
    "TunableTypeNotSupported",
}
WITHOUT_PLACE = ("NotInsideKernel", "SourceNotAvailable", "NoTensorArgs", "BackendUnsupported", "InvalidConfig")
WITHOUT_PLACE += ("DoubleBackward",)  # raised where PyTorch goes back
WITHOUT_HINT = (
    "TorchOp",
    "Undefined",
    "Unsupported",
    "InvalidReductionDim",
    "InvalidTileRange",
    "NotInside",
    "DeviceAPI",
)


@pytest.fixture(scope="module")
def texts():
    return {case.title: error_page.run(case, gallery_hl.PAGE.header) for case in gallery_hl.CASES}


def test_mistakes_are_explained(texts):
    for text in texts.values():
        assert text.startswith(WITHOUT_PLACE) or ('File "kernels.py", line' in text and "^" in text), text
        assert "hint: " in text or text.startswith(WITHOUT_HINT), text


def test_every_class_of_error_is_shown(texts):
    raised = {text.split(":")[0] for text in texts.values()}
    classes = {
        name
        for name, item in vars(exc).items()
        if inspect.isclass(item) and issubclass(item, exc.Error) and item.__name__ == name
    }
    assert classes - raised - exc.NEVER_RAISED <= ELSEWHERE  # which exist once something has named them


def test_the_page_is_up_to_date(texts):
    assert gallery.is_current(gallery_hl.PAGE), "run make docs"
