"""The XML of models, for clients with another MuJoCo: the stock files, and custom ones with all that they include."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import mujoco
import numpy as np
import pytest
from dressage.envs import adding, load_card, xml_models
from dressage.envs.custom import VARIABLE, XML_FILE, folder_of
from dressage.envs.loading import quiet_loading
from dressage.envs.tasks import SIMULATED_IDS, task
from dressage.errors import FailedPrecondition, InvalidArgument, NotFound

MAIN = """
<mujoco model="cart">
  <compiler meshdir="../meshes"/>
  <asset><mesh name="hull" file="hull.obj"/></asset>
  <include file="parts/cart.xml"/>
  <actuator><motor joint="slide" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
PART = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 .5"><joint name="slide" type="slide" axis="1 0 0"/><geom type="mesh" mesh="hull" mass="1"/></body>
  </worldbody>
</mujoco>
"""
HULL = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"


@pytest.fixture
def cart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The main file of a model whose mesh is outside of its folder."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "environments"))
    (tmp_path / "model" / "parts").mkdir(parents=True)
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "hull.obj").write_text(HULL)
    (tmp_path / "model" / "parts" / "cart.xml").write_text(PART)
    main = tmp_path / "model" / "cart.xml"
    main.write_text(MAIN)
    return main


def unpacked(model: xml_models.XmlModel, folder: Path) -> mujoco.MjModel:
    """Load a model as another computer would, from its files alone."""
    for path, data in {model.path: model.xml.encode(), **model.files}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    with quiet_loading():
        return mujoco.MjModel.from_xml_path(str(folder / model.path))


@pytest.mark.parametrize("env_id", SIMULATED_IDS)
def test_the_stock_xml_is_that_of_the_installed_gymnasium(env_id: str) -> None:
    model = xml_models.xml_model(env_id)
    assets = Path(str(importlib.util.find_spec("gymnasium").origin)).parent / "envs" / "mujoco" / "assets"
    assert model.xml.encode() == (assets / model.path).read_bytes()
    assert not model.files and "file=" not in model.xml


def test_a_custom_model_is_kept_with_all_that_it_includes(cart: Path, tmp_path: Path) -> None:
    env_id = adding.add_model(cart, max_episode_steps=40).id
    model = xml_models.xml_model(env_id)
    assert (model.path, sorted(model.files)) == ("model/cart.xml", ["meshes/hull.obj", "model/parts/cart.xml"])
    copy, original = unpacked(model, tmp_path / "elsewhere"), task(env_id).load()
    assert np.array_equal(copy.mesh_vert, original.mesh_vert)
    assert np.array_equal(copy.geom_pos, original.geom_pos) and copy.nq == original.nq == 1


def test_a_model_with_absolute_paths_is_added_without_its_xml(cart: Path, tmp_path: Path) -> None:
    cart.write_text(MAIN.replace('"../meshes"', f'"{tmp_path / "meshes"}"'))
    notes: list[str] = []
    env_id = adding.add_model(cart, max_episode_steps=40, notify=notes.append).id
    assert load_card(env_id).id == "mjcf:cart"
    assert "absolute paths" in notes[0] and "3D" in notes[0]
    with pytest.raises(FailedPrecondition, match="envs add") as caught:
        xml_models.xml_model(env_id)
    assert caught.value.reason == "NO_XML_MODEL"


def test_a_model_that_is_too_large_is_added_without_its_xml(cart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_models, "MAX_BYTES", 100)
    notes: list[str] = []
    adding.add_model(cart, max_episode_steps=40, notify=notes.append)
    assert "at most" in notes[0]


def test_an_archive_that_leads_out_of_itself_is_refused(cart: Path) -> None:
    env_id = adding.add_model(cart, max_episode_steps=40).id
    with zipfile.ZipFile(folder_of(env_id) / XML_FILE, "w") as file:
        file.writestr("model.xml", "<mujoco/>")
        file.writestr("../evil.xml", "<mujoco/>")
    with pytest.raises(InvalidArgument, match="leads out of it"):
        xml_models.xml_model(env_id)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Nim-v0", "PointMaze_Large-v3"])
def test_an_environment_without_states_of_a_model_says_so(env_id: str) -> None:
    with pytest.raises(FailedPrecondition, match="records no states of a MuJoCo model"):
        xml_models.xml_model(env_id)


def test_a_model_of_a_pack_is_where_the_renderer_is() -> None:
    with pytest.raises(FailedPrecondition, match="is in the environment pack isaaclab, where the renderer runs"):
        xml_models.xml_model("Isaac-Cartpole-Direct")


def test_an_unknown_environment_is_not_found() -> None:
    with pytest.raises(NotFound):
        xml_models.xml_model("Nothing-v0")
