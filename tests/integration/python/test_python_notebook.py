"""The notebook runs from its first cell to its last, on services in its own process, and shows what it produces."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "examples" / "first_policy.ipynb"
_CELL_SECONDS = 270


def test_the_notebook_runs_and_shows_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRESSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("DRESSAGE_ADDRESS", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    [shown] = outputs[0]
    html = shown.data["text/html"]
    assert "succeeded" in html and "<th>upright</th>" in html
    assert "data:image/png;base64," in html and "data:video/mp4;base64," in html
    assert outputs[1][0].text.startswith("succeeded ") and "def reward(state" in outputs[1][0].text
    assert "20 episodes" in outputs[3][0].data["text/html"]
    assert "<b>passed</b>" in outputs[4][0].data["text/html"]
    assert "'alive': 1.0" in outputs[5][0].data["text/plain"]
    assert list((tmp_path / "home" / "artifacts" / "sessions").iterdir()), "the services ran in the notebook's process"
    assert not (tmp_path / "home" / "server.json").exists(), "they have stopped"


def test_the_notebook_is_stored_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
