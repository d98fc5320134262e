# SPDX-License-Identifier: MIT
"""The example notebooks run from top to bottom, and are kept without output."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
nbformat.validate(notebook)
where = {"metadata": {"path": sys.argv[2]}}
NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
print(sum(len(cell.get("outputs", [])) for cell in notebook.cells))
"""


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_kept_without_output(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="pip install -e '.[dev]'")
    pytest.importorskip("ipykernel", reason="pip install -e '.[dev]'")
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, path, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) >= 4
    text = path.read_text()
    assert text.count('"outputs": []') == text.count('"cell_type": "code"')
    assert "/home/" not in text
    assert "/tmp/" not in text
