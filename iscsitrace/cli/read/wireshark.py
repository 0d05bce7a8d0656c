"""``iscsitrace wireshark``: install the plugin, the extcap and the profile into Wireshark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from iscsitrace.cli.options import as_json
from iscsitrace.show.terminal import show_heading, show_json, show_line, show_table

if TYPE_CHECKING:
    from iscsitrace.wireshark.install import FileState, Folders


@click.group(epilog="Example:  iscsitrace wireshark install")
def command() -> None:
    """Install the plugin, the extcap and the profile into Wireshark's personal folders, check or remove them.

    The plugin adds iscsitrace.* fields and a statistics window, the extcap two interfaces (a capture with trigger, a
    simulated WAN), the profile columns, colours and filter buttons. See `iscsitrace docs plugins`.
    """


@command.command(epilog="Example:  iscsitrace wireshark install")
@click.option("--force", is_flag=True, help="Overwrite files that are not from iscsitrace, or were changed.")
@as_json
def install(force: bool, is_json: bool) -> None:
    """Write the files, or update them.

    If an existing file is not from iscsitrace, nothing is written without --force. A file that was changed after the
    installation, by you or by Wireshark (it saves the columns of a profile), is kept.
    """
    from iscsitrace.wireshark import install as installation

    folders = installation.find_folders()
    found = [program.name for program in installation.programs()]
    results = installation.install(folders, is_forced=force)
    is_loaded = installation.is_loaded(folders.lua_plugins / installation.PLUGIN)
    if is_json:
        show_json(_document(folders, results) | {"is_plugin_loaded": is_loaded})
        return
    _show_results(results)
    if any(result.state == "kept" for result in results):
        show_line("kept: changed since it was installed; --force overwrites it")
    _show_second_copies(folders)
    _show_unless_loaded(is_loaded)
    if "wireshark" in found:
        _show_next_steps()
    elif found:
        show_line(f"Wireshark itself was not found, only {', '.join(found)}: tshark -C iscsitrace uses the profile")
    else:
        show_line("neither Wireshark nor tshark was found; the files are in the folders that they read")


@command.command(epilog="Example:  iscsitrace wireshark status")
@as_json
def status(is_json: bool) -> None:
    """Show which files are installed, whether they are of this version, and which Wireshark was found."""
    from iscsitrace import __version__
    from iscsitrace.wireshark import install as installation

    folders = installation.find_folders()
    results = installation.status(folders)
    installed = installation.installed_version(folders)
    found = list(installation.programs())
    is_loaded = installation.is_loaded(folders.lua_plugins / installation.PLUGIN) if installed else None
    is_current = all(result.state in ("current", "changed") for result in results)
    if is_json:
        programs = [{"name": each.name, "path": each.path, "version": each.version} for each in found]
        show_json(
            _document(folders, results)
            | {"installed_version": installed, "is_current": is_current, "is_plugin_loaded": is_loaded}
            | {"programs": programs}
        )
        return
    show_heading("Wireshark")
    if found:
        show_table(("program", "version", "path"), [(each.name, each.version or "-", each.path) for each in found])
    else:
        show_line("neither Wireshark nor tshark was found; the folders are those that they read")
    show_heading("files")
    _show_results(results)
    show_heading("verdict")
    _show_second_copies(folders)
    _show_unless_loaded(is_loaded)
    if installed is None:
        show_line("not installed: iscsitrace wireshark install")
    elif not is_current:
        show_line(f"installed: version {installed}, not up to date with {__version__}: iscsitrace wireshark install")
    elif any(result.state == "changed" for result in results):
        show_line(f"installed: version {__version__}, up to date; changed files are kept")
    else:
        show_line(f"installed: version {__version__}, up to date")


@command.command(epilog="Example:  iscsitrace wireshark uninstall")
@click.option("--force", is_flag=True, help="Also remove files that were changed.")
@as_json
def uninstall(force: bool, is_json: bool) -> None:
    """Remove the files that install wrote, and nothing else. Changed files are kept and listed."""
    from iscsitrace.wireshark import install as installation

    folders = installation.find_folders()
    results = installation.uninstall(folders, is_forced=force)
    left = installation.leftovers(folders)
    if is_json:
        show_json(_document(folders, results) | {"left_in_profile": left})
        return
    if not results:
        show_line("nothing is installed")
        return
    _show_results(results)
    if any(result.state == "kept" for result in results):
        show_line("kept: changed since it was installed; --force removes it")
    if left:
        profile = folders.profiles / installation.PROFILE
        show_line(f"{profile} is kept: {', '.join(left)} in it is not from iscsitrace")


_NEXT_STEPS: Final = (
    "Restart Wireshark. Click 'Profile' at the right end of the status bar, and choose iscsitrace.",
    "Open a capture. The buttons to the right of the display filter show slow and failed commands.",
    "Click 'Statistics', 'iSCSI commands' for latencies; 'Tools', 'iscsitrace' to diagnose the open capture.",
    "Comments at the frames to look at: iscsitrace export --annotate OUT.pcapng CAPTURE, then the button 'Diagnosis'.",
)


def _show_next_steps() -> None:
    show_heading("next")
    for number, step in enumerate(_NEXT_STEPS, 1):
        show_line(f"{number}. {step}")


def _show_results(results: list[FileState]) -> None:
    show_table(("state", "file"), [(result.state, result.path) for result in results])


def _show_second_copies(folders: Folders) -> None:
    from iscsitrace.wireshark import install as installation

    for copy in installation.second_copies(folders):
        show_line(f"{copy} is a second copy that Wireshark loads, too: remove it")


def _show_unless_loaded(is_loaded: bool | None) -> None:
    if is_loaded is False and os.name == "posix" and os.geteuid() == 0:
        show_line("this tshark loads no plugin as root: run Wireshark and tshark as another user")
    elif is_loaded is False:
        show_line("this tshark does not load the plugin: it was built without Lua, or Lua is disabled")


def _document(folders: Folders, results: list[FileState]) -> dict[str, Any]:
    from iscsitrace import __version__
    from iscsitrace.tables.schema import SCHEMA_VERSION
    from iscsitrace.wireshark import install as installation

    return {
        "schema": SCHEMA_VERSION,
        "tool": {"name": "iscsitrace", "version": __version__},
        "folders": {
            "configuration": str(folders.configuration),
            "lua_plugins": str(folders.lua_plugins),
            "extcap": str(folders.extcap),
        },
        "files": list(installation.states_by_name(results)),
    }
