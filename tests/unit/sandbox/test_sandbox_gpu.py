"""The allow-list of a GPU's files, with files of the names that NVIDIA's driver makes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from dressage.sandbox.gpu import gpu_access
from dressage.sandbox.limits import Limits
from dressage.sandbox.process import SandboxProcess

ALLOWED = ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap12")
REFUSED = (
    "nvidia-uvm-tools",
    "nvidia-modeset",
    "nvidia-nvswitchctl",
    "nvidia-caps/nvidia-cap1",
    "nvidia-caps/nvidia-cap2",
    "nvidia0.bak",
    "nvidia",
    "sda",
    "mem",
    "dri/card0",
)


def _machine(root: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("proc/driver/nvidia/params", "proc/devices", "proc/kcore", "usr/local/nvidia/lib64/libcuda.so.1"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _as_devices(path: Path) -> os.stat_result:
    status = os.lstat(path)
    kind = stat.S_IFCHR if stat.S_ISREG(status.st_mode) else stat.S_IFMT(status.st_mode)
    return os.stat_result((kind | 0o666, *status[1:]))


def test_only_listed_device_files_are_allowed(tmp_path: Path) -> None:
    _machine(tmp_path, (*ALLOWED, *REFUSED))
    access = gpu_access(tmp_path, lstat=_as_devices)
    assert access is not None
    assert {str(path.relative_to(tmp_path / "dev")) for path in access.devices} == set(ALLOWED)


def test_what_the_driver_reads_is_allowed_and_nothing_else_of_proc(tmp_path: Path) -> None:
    _machine(tmp_path, ("nvidia0",))
    access = gpu_access(tmp_path, lstat=_as_devices)
    assert access is not None
    read = {str(path.relative_to(tmp_path)) for path in access.read_only}
    assert read == {"proc/driver/nvidia/params", "proc/devices", "usr/local/nvidia/lib64"}
    assert dict(access.env)["LD_LIBRARY_PATH"] == str(tmp_path / "usr/local/nvidia/lib64")


def test_a_plain_file_or_a_link_is_no_device(tmp_path: Path) -> None:
    _machine(tmp_path, ("nvidiactl",))
    assert gpu_access(tmp_path) is None
    (tmp_path / "dev" / "nvidia0").symlink_to("/dev/null")
    assert gpu_access(tmp_path, lstat=_as_devices) is None


def test_a_machine_without_a_gpu_has_none(tmp_path: Path) -> None:
    assert gpu_access(tmp_path) is None


def test_a_process_opens_the_allowed_devices_only(tmp_path: Path) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    try:
        for name in ("nvidia0", "nvidiactl", "nvidia-modeset"):
            os.mknod(devices / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.close(os.open(devices / "nvidia0", os.O_RDWR))
    except PermissionError:
        pytest.skip("device files cannot be made or opened here")
    access = gpu_access(tmp_path)
    assert access is not None
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    paths = [str(devices / name) for name in ("nvidia0", "nvidiactl", "nvidia-modeset")]
    with SandboxProcess.start(
        "sandbox_targets:open_devices",
        limits=Limits(),
        scratch=scratch,
        devices=access.devices,
        read_only=access.read_only,
        env=dict(access.env),
    ) as running:
        running.channel.send({"paths": paths})
        assert running.channel.recv(timeout=30)["opened"] == [True, True, False]
