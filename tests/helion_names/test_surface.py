"""Every name of the list is there: as what it says, or refused with its reason where it is used."""

from __future__ import annotations

import importlib

import pytest

from tests.hl import test_helion_page as page
from tests.meta.sources import ROOT
from tests.triton_names.test_switch import run
from tilewright import hl
from tilewright.helion_names.modules import Refused
from tilewright.helion_names.surface import REFUSED, ROWS
from tilewright.hl import exc
from tilewright.tools import helionpage

IDS = [f"{row.module}-{row.names[0]}" for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_row_is_what_it_says(row):
    if row.state != REFUSED:
        home = importlib.import_module(row.home)
        assert all(hasattr(home, name) for name in row.names) and all(name.isidentifier() for name in row.names)
        return
    assert row.why and not row.home
    ours = {"helion": hl, "helion.autotuner": hl.autotuner}.get(row.module)
    for name in row.names:  # what is there by now is refused no longer
        assert not hasattr(ours, name), f"{name} is there: move it to a row of those that work"


def test_a_name_is_in_one_row():
    names = [(row.module, name) for row in ROWS for name in row.names]
    assert len(names) == len(set(names))


def test_what_the_page_of_differences_knows_is_in_the_list():
    """The lists of that test are Helion's documentation; those of the surface are its modules."""
    listed = {name for row in ROWS if row.module == "helion.language" for name in row.names}
    assert listed == set(page.LANGUAGE.split())


def test_the_page_is_written_from_the_list():
    assert (ROOT / "docs" / "state_helion.md").read_text(encoding="utf-8") == helionpage.markdown()


def test_a_refused_name_says_why():
    name = Refused("helion.autotuner.LLMGuidedSearch", "there is no model to ask")
    with pytest.raises(exc.BackendUnsupported, match=r"(?s)LLMGuidedSearch.*no model to ask"):
        name(1, x=2)
    with pytest.raises(exc.BackendUnsupported):

        class Own(name):
            pass

    with pytest.raises(exc.BackendUnsupported):
        name.anything()
    assert "no model to ask" in repr(name) and not hasattr(name, "__wrapped__")


def test_every_name_is_imported_by_its_own_name():
    """In one process: as programs write it, with the refused ones among them."""
    run(
        """if 1:
        import tilewright
        tilewright.as_helion()
        import helion
        from tilewright.helion_names.surface import REFUSED, ROWS
        from tilewright.hl import exc
        for row in ROWS:
            for name in row.names:
                scope = {}
                exec(f"from {row.module} import {name}", scope)
                if row.state == REFUSED:
                    try:
                        scope[name]()
                    except exc.BackendUnsupported as error:
                        assert row.why in str(error)
                    else:
                        raise AssertionError(name)
        try:
            import helion._compiler.type_propagation
        except ImportError as error:
            assert "the compiler of Helion itself" in str(error)
        else:
            raise AssertionError
    """
    )
