"""Files of installed packages, and this host's profile."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tasc_compute.binaries import located_binary, package_file
from tasc_compute.contracts import Accelerator, AcceleratorInfo, DeviceVendor
from tasc_compute.errors import RecipeError
from tasc_compute.host import host_profile, is_wsl


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package whose import would leave a trace."""
    root = tmp_path / "site" / "enginepkg"
    (root / "bin").mkdir(parents=True)
    (root / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    (root / "bin" / "server").write_text("#!")
    (root / "bin" / "liba.so.1.2").write_text("")
    links = {"liba.so.1": "liba.so.1.2", "liba.so": "liba.so.1"}
    (root / "bin" / "_symlinks.json").write_text(json.dumps(links))
    monkeypatch.syspath_prepend(str(root.parent))
    return root


def test_an_executable_is_located_without_import_and_its_libraries_are_linked(package, tmp_path):
    links = tmp_path / "links"
    for _ in range(2):
        located = located_binary("package:enginepkg/bin/server", links)
    assert located.path == package / "bin" / "server"
    assert located.env == {"LD_LIBRARY_PATH": str(links)}
    assert {path.name: path.readlink() for path in links.iterdir()} == {
        "liba.so.1": package / "bin" / "liba.so.1.2",
        "liba.so": package / "bin" / "liba.so.1.2",
    }
    assert not (tmp_path / "imported").exists()
    assert "enginepkg" not in sys.modules


def test_links_follow_a_new_version(package, tmp_path):
    located_binary("package:enginepkg/bin/server", tmp_path / "links")
    (package / "bin" / "_symlinks.json").write_text('{"liba.so": "liba.so.2"}')
    located_binary("package:enginepkg/bin/server", tmp_path / "links")
    assert (tmp_path / "links" / "liba.so").readlink() == package / "bin" / "liba.so.2"


def test_a_package_without_a_list_needs_no_environment(package, tmp_path):
    (package / "bin" / "_symlinks.json").unlink()
    assert located_binary("package:enginepkg/bin/server", tmp_path / "links").env == {}
    assert not (tmp_path / "links").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_damaged_list_of_links_is_refused(package, tmp_path, content):
    (package / "bin" / "_symlinks.json").write_text(content)
    with pytest.raises(RecipeError, match="list of links is damaged"):
        located_binary("package:enginepkg/bin/server", tmp_path / "links")


def test_a_link_name_cannot_leave_the_folder(package, tmp_path):
    (package / "bin" / "_symlinks.json").write_text('{"../../evil": "../../../etc/passwd"}')
    located_binary("package:enginepkg/bin/server", tmp_path / "links")
    assert [path.name for path in (tmp_path / "links").iterdir()] == ["evil"]
    assert (tmp_path / "links" / "evil").readlink() == package / "bin" / "passwd"


@pytest.mark.parametrize(
    "reference",
    [
        "package:",
        "package:enginepkg",
        "package:enginepkg/none",
        "package:enginepkg/../x",
        "package:no-such/x",
        "package:a.b/x",
    ],
)
def test_what_is_not_there_is_refused_with_the_way_out(package, reference):
    with pytest.raises(RecipeError, match=" -> "):
        package_file(reference)


def test_wsl_is_told_by_the_kernels_name(tmp_path):
    """Lesson 45: WSL is detected, since it answers and filters differently."""
    assert not is_wsl(tmp_path)
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/osrelease").write_text("5.15.167.4-Microsoft-standard-WSL2\n")
    assert is_wsl(tmp_path)
    (tmp_path / "sys/kernel/osrelease").write_text("6.1.0-debian\n")
    assert not is_wsl(tmp_path)
    (tmp_path / "sys/fs/binfmt_misc").mkdir(parents=True)
    (tmp_path / "sys/fs/binfmt_misc/WSLInterop").write_text("")
    assert is_wsl(tmp_path)


def test_the_profile_follows_the_devices_that_a_snapshot_found():
    gpu = AcceleratorInfo(
        "GPU-a", 0, DeviceVendor.NVIDIA, "GB10", Accelerator.CUDA, 8, 4, True, None, None, None, None, None
    )
    profile = host_profile([gpu], docker_gpu=False)
    assert (profile.accelerator, profile.unified_memory, profile.device_count, profile.docker_gpu) == (
        Accelerator.CUDA,
        True,
        1,
        False,
    )
    assert (host_profile().accelerator, host_profile().device_count) == (Accelerator.CPU, 0)
