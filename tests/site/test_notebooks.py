"""The committed chapters: executed whole, from a clean kernel, with the state of their widgets."""

import json
import re

import nbformat
import pytest

from tools import toc
from tools.execute import STATE, VIEW

CHAPTERS = toc.chapters()
# Folders of one machine that tracebacks, warnings and temporary files name.
PLACES = r"/home/|/root/|/Users/|/tmp/|/opt/|site-packages|\.venv|" + re.escape(str(toc.ROOT))

NAMED = r'aria-label="[^"]+"|aria-labelledby="[^"]+"|alt="[^"]+"|aria-hidden="true"'


@pytest.fixture(scope="module", params=CHAPTERS)
def notebook(request):
    return nbformat.read(CHAPTERS[request.param], as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def displayed(notebook):
    """Yield the data of all displayed outputs."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "data" in output:
                yield output.data


def test_is_valid(notebook):
    nbformat.validate(notebook)


def test_was_executed_in_order_from_a_clean_kernel(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "run make refresh"


def test_holds_no_error_and_no_warning(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.get("name") != "stderr", output.text
            if "raises-exception" not in cell.metadata.get("tags", []):
                assert output.output_type != "error", output.ename


def test_every_widget_that_is_shown_has_its_state(notebook):
    state = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    shown = [data[VIEW]["model_id"] for data in displayed(notebook) if VIEW in data]
    assert set(shown) <= set(state), "run make refresh, which stores the widgets' state"
    linked = set(re.findall(r"IPY_MODEL_(\w+)", json.dumps(state)))
    assert linked <= set(state)


def test_outputs_name_no_place_of_one_machine(notebook):
    outputs = [cell.outputs for cell in code_cells(notebook)]
    text = json.dumps([outputs, notebook.metadata])
    assert re.findall(rf".{{0,40}}(?:{PLACES}).{{0,40}}", text) == []


def test_pictures_have_a_text_alternative(notebook):
    for data in displayed(notebook):
        assert not {"image/png", "image/jpeg"} & set(data), "show.figure draws SVG with alt text"
        for image in re.findall(r"<(?:svg|img)\b[^>]*>", data.get("text/html", "")):
            assert re.search(NAMED, image), image[:200]
