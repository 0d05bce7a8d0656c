"""Files installed in Wireshark's personal folders: found by tshark, never over a user's file, and removed again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest
from click.testing import CliRunner, Result

import iscsitrace
from iscsitrace.cli import main
from iscsitrace.errors import InputInvalid, OutputExists
from iscsitrace.wireshark import install as installation
from iscsitrace.wireshark.install import Folders
from tools.docs import ROOT

SAMPLE = ROOT / "samples" / "sequential-read-4ms" / "capture.pcapng.gz"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "config" / "wireshark", tmp_path / "lib" / "plugins", tmp_path / "lib" / "extcap")


def states(results: list[installation.FileState]) -> dict[str, str]:
    return {result.path.name: result.state for result in results}


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_package_includes_the_files_of_the_folder_plugins() -> None:
    carried = {path.relative_to(installation.SOURCES) for path in installation.SOURCES.rglob("*")}
    assert Path("extcap", "iscsitrace_extcap.py") in carried
    assert carried == {path.relative_to(ROOT / "plugins") for path in (ROOT / "plugins").rglob("*")}


def test_install_then_uninstall_leaves_nothing(folders: Folders, tmp_path: Path) -> None:
    done = installation.install(folders)
    assert set(states(done).values()) == {"written"}
    assert {result.path for result in done} | {folders.configuration / installation.RECORD} == {
        path for path in tmp_path.rglob("*") if path.is_file()
    }
    assert set(states(installation.status(folders)).values()) == {"current"}
    assert installation.installed_version(folders) == iscsitrace.__version__
    assert set(states(installation.install(folders)).values()) == {"current"}
    assert set(states(installation.uninstall(folders)).values()) == {"removed"}
    assert list(tmp_path.iterdir()) == []
    assert installation.uninstall(folders) == []


def test_the_installation_ends_with_what_to_click(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """The button that it names is one of the profile."""
    monkeypatch.setattr(installation, "find_folders", lambda: folders)
    program = installation.Program("wireshark", "/usr/bin/wireshark", "4.4.0")
    monkeypatch.setattr(installation, "programs", lambda: iter([program]))
    monkeypatch.setattr(installation, "is_loaded", lambda _: True)
    result = CliRunner().invoke(main, ["wireshark", "install"])
    assert result.exit_code == 0, result.output
    steps = result.stdout.partition("\nnext\n")[2].splitlines()
    assert [step[:2] for step in steps] == ["1.", "2.", "3.", "4."]
    assert "Restart Wireshark" in steps[0]
    assert '"TRUE","Diagnosis","frame.comment"' in (ROOT / "plugins" / "profile" / "dfilter_buttons").read_text()
    assert steps[-1].endswith("then the button 'Diagnosis'.")


def test_existing_folders_stay(folders: Folders, tmp_path: Path) -> None:
    folders.lua_plugins.mkdir(parents=True)
    (folders.configuration / "profiles").mkdir(parents=True)
    installation.install(folders)
    installation.uninstall(folders)
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == {
        Path("lib"),
        Path("lib/plugins"),
        Path("config"),
        Path("config/wireshark"),
        Path("config/wireshark/profiles"),
    }


def test_a_file_of_the_user_is_not_overwritten(folders: Folders, tmp_path: Path) -> None:
    theirs = folders.extcap / installation.EXTCAP
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    with pytest.raises(OutputExists, match="not from iscsitrace; nothing was written"):
        installation.install(folders)
    assert files_below(tmp_path) == {"lib/extcap/iscsitrace_extcap"}
    assert states(installation.status(folders))["iscsitrace_extcap"] == "foreign"
    assert states(installation.install(folders, is_forced=True))["iscsitrace_extcap"] == "updated"
    assert "exec" in theirs.read_text()


def test_a_symbolic_link_belongs_to_the_user(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    folders.extcap.mkdir(parents=True)
    (folders.extcap / installation.EXTCAP).symlink_to(tmp_path / "mine")
    with pytest.raises(OutputExists):
        installation.install(folders)
    installation.install(folders, is_forced=True)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (folders.extcap / installation.EXTCAP).is_symlink()


def test_a_changed_file_stays_unless_forced(folders: Folders) -> None:
    installation.install(folders)
    columns = folders.profiles / "iscsitrace" / "preferences"
    columns.write_text("other columns")
    assert states(installation.status(folders))["preferences"] == "changed"
    assert states(installation.install(folders))["preferences"] == "kept"
    assert columns.read_text() == "other columns"
    done = states(installation.uninstall(folders))
    assert done.pop("preferences") == "kept"
    assert set(done.values()) == {"removed"}
    assert columns.read_text() == "other columns"
    # it is still known whose it was
    again = states(installation.install(folders))
    assert again.pop("preferences") == "kept"
    assert set(again.values()) == {"written"}
    assert states(installation.install(folders, is_forced=True))["preferences"] == "updated"
    columns.write_text("once more")
    assert states(installation.uninstall(folders, is_forced=True))["preferences"] == "removed"


def test_files_that_wireshark_rewrites_do_not_count_as_changed(folders: Folders, tmp_path: Path) -> None:
    installation.install(folders)
    recent = folders.profiles / "iscsitrace" / "recent"
    recent.write_text("other widths")
    assert set(states(installation.status(folders)).values()) == {"current"}
    installation.install(folders)
    assert recent.read_text() == "other widths"
    assert set(states(installation.uninstall(folders)).values()) == {"removed"}
    assert list(tmp_path.iterdir()) == []


def test_an_older_version_is_updated(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    now = installation.items(folders)
    older = [installation.Item(item.path, b"as it was", item.is_executable) for item in now]
    older.append(installation.Item(folders.lua_plugins / "once.lua", b"of use then"))
    with monkeypatch.context() as patch:
        patch.setattr(installation, "items", lambda _: older)
        installation.install(folders)
    (folders.extcap / installation.EXTCAP).unlink()
    found = states(installation.status(folders))
    assert found.pop("once.lua") == "obsolete"
    assert found.pop("recent") == "current"
    assert found.pop("iscsitrace_extcap") == "missing"
    assert set(found.values()) == {"outdated"}
    done = states(installation.install(folders))
    assert done.pop("once.lua") == "removed"
    assert done.pop("iscsitrace_extcap") == "written"
    assert done.pop("recent") == "current"
    assert set(done.values()) == {"updated"}
    assert {result.path: result.state for result in installation.status(folders)} == {
        item.path: "current" for item in now
    }


def test_a_second_copy_is_reported(folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    (sources / "profile").mkdir(parents=True)
    (sources / "one.lua").write_text("-- a plugin")
    monkeypatch.setattr(installation, "SOURCES", sources)
    installation.install(folders)
    assert (folders.lua_plugins / "one.lua").read_text() == "-- a plugin"
    assert installation.second_copies(folders) == []
    older = folders.configuration / "plugins" / "one.lua"
    older.parent.mkdir()
    older.write_text("-- of an older version")
    assert installation.second_copies(folders) == [older]


def test_an_invalid_record_is_reported(folders: Folders) -> None:
    installation.install(folders)
    (folders.configuration / installation.RECORD).write_text('{"files": 3}')
    for function in (installation.install, installation.uninstall, installation.status):
        with pytest.raises(InputInvalid, match=installation.RECORD):
            function(folders)


def test_a_folder_that_cannot_be_created_is_reported(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "lib").write_text("a file")
    with pytest.raises(InputInvalid, match="cannot "):
        installation.install(folders)


@pytest.mark.parametrize(
    ("environment", "is_windows", "configuration", "plugins", "extcap"),
    [
        (
            {"HOME": "/home/a"},
            False,
            "/home/a/.config/wireshark",
            "/home/a/.local/lib/wireshark/plugins",
            "/home/a/.local/lib/wireshark/extcap",
        ),
        (
            {"HOME": "/home/a", "XDG_CONFIG_HOME": "/settings"},
            False,
            "/settings/wireshark",
            "/home/a/.local/lib/wireshark/plugins",
            "/home/a/.local/lib/wireshark/extcap",
        ),
        (
            {"APPDATA": r"C:\Users\a\AppData\Roaming"},
            True,
            r"C:\Users\a\AppData\Roaming\Wireshark",
            r"C:\Users\a\AppData\Roaming\Wireshark\plugins",
            r"C:\Users\a\AppData\Roaming\Wireshark\extcap",
        ),
    ],
)
def test_the_folders_of_the_manual(
    environment: dict[str, str], is_windows: bool, configuration: str, plugins: str, extcap: str
) -> None:
    found = installation.default_folders(environment, is_windows)
    assert {name: str(path) for name, path in found.items()} == {
        "configuration": configuration,
        "lua_plugins": plugins,
        "extcap": extcap,
    }
    assert all(isinstance(path, PureWindowsPath) == is_windows for path in found.values())


def fake_tshark(folder: Path, text: str) -> None:
    program = folder / "tshark"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)


def test_without_an_extcap_folder_from_tshark_the_configuration_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_tshark(tmp_path, "Personal configuration:\t/c\nPersonal Lua Plugins:\t/p\nExtcap path:\t/usr/lib/extcap")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert installation.find_folders() == Folders(Path("/c"), Path("/p"), Path("/c/extcap"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder."""
    for name in list(os.environ):
        if name.startswith(("XDG_", "WIRESHARK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["wireshark", *arguments], catch_exceptions=False)


def document(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def said_by(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_tshark_finds_what_was_installed(home: Path) -> None:
    before = document("status")
    assert before["installed_version"] is None
    assert not before["is_current"]
    assert {file["state"] for file in before["files"]} == {"not installed"}
    assert "tshark" in {program["name"] for program in before["programs"]}
    assert before["is_plugin_loaded"] is None
    installed = document("install")
    assert {file["state"] for file in installed["files"]} == {"written"}
    assert installed["is_plugin_loaded"]
    after = document("status")
    assert after["is_current"]
    assert after["is_plugin_loaded"]
    assert after["installed_version"] == iscsitrace.__version__
    assert all(Path(file["path"]).is_relative_to(home) for file in after["files"])
    listed = said_by("tshark", "-D")
    assert "iscsitrace (iSCSI capture with trigger)" in listed
    assert "iscsitrace-wan (iSCSI over a simulated WAN)" in listed
    # a profile that there is not is an error
    assert said_by("tshark", "-C", "iscsitrace", "-r", str(SAMPLE), "-c", "1")
    assert {file["state"] for file in document("uninstall")["files"]} == {"removed"}
    assert "iscsitrace" not in said_by("tshark", "-D")


@pytest.mark.parametrize(
    ("user", "line"),
    [
        (0, "this tshark loads no plugin as root: run Wireshark and tshark as another user"),
        (1000, "this tshark does not load the plugin: it was built without Lua, or Lua is disabled"),
    ],
)
def test_a_plugin_that_is_not_loaded_is_reported(
    user: int, line: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = home / ".local/lib/wireshark/plugins"
    # another script of this name is not ours
    fake_tshark(home, f"Personal Lua Plugins:\t{plugins}\nother.lua\t1\tlua script\t/usr/lib/iscsitrace.lua")
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert document("install")["is_plugin_loaded"] is False
    assert line in run("install").output
    assert line in run("status").output
    fake_tshark(home, f"Personal Lua Plugins:\t{plugins}\niscsitrace.lua\t1\tlua script\t{plugins}/iscsitrace.lua")
    assert document("status")["is_plugin_loaded"] is True
    assert "this tshark" not in run("install").output


def test_without_wireshark_the_default_folders_are_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "nothing"))
    result = run("install")
    assert result.exit_code == 0
    assert "neither Wireshark nor tshark was found" in result.output
    assert (home / ".local/lib/wireshark/extcap/iscsitrace_extcap").is_file()
    assert (home / ".config/wireshark/profiles/iscsitrace/colorfilters").is_file()
    assert "neither Wireshark nor tshark was found" in run("status").output
    assert run("uninstall").exit_code == 0
    assert files_below(home) == set()


def test_printed_lines(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "nothing"))
    assert "not installed: iscsitrace wireshark install" in run("status").output
    assert run("uninstall").output == "nothing is installed\n"
    run("install")
    assert f"installed: version {iscsitrace.__version__}, up to date\n" in run("status").output
    profile = home / ".config/wireshark/profiles/iscsitrace"
    (profile / "colorfilters").unlink()
    assert "not up to date" in run("status").output
    run("install")
    (profile / "preferences").write_text("mine")
    assert "changed files are kept" in run("status").output
    (profile / "hosts").write_text("Wireshark's")
    assert "kept: changed since it was installed" in run("install").output
    left = run("uninstall").output
    assert "kept: changed since it was installed" in left
    assert "hosts in it is not from iscsitrace" in left
    theirs = installation.find_folders().extcap / installation.EXTCAP
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("theirs")
    refused = run("install")
    assert refused.exit_code == 2
    assert len(refused.output.splitlines()) == 1
