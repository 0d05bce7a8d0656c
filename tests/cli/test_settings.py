"""Settings of the commands that make traffic: by ``--set``, from a file, as a list, and in the help."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from iscsitrace.cli import main
from iscsitrace.cli.traffic import initiator, lab, link, simulate, target
from iscsitrace.cli.traffic.settings_command import SettingsCommand, name_of, value_name

COMMANDS: dict[str, click.Command] = {
    "simulate": simulate.command, "lab run": lab.run, "lab up": lab.up, "target": target.command,
    "link": link.command, "initiator read": initiator.workload, "initiator ping": initiator.ping,
    "initiator discover": initiator.discover,
}  # fmt: skip
RUN = ("read", "-o", "DIR")


def settings_of(name: str) -> SettingsCommand:
    command = COMMANDS[name]
    assert isinstance(command, SettingsCommand)
    return command


def taken(*words: str, command: click.Command = simulate.command) -> dict[str, Any]:
    """The values that a command gets from these words."""
    return dict(command.make_context("simulate", [*RUN, *words]).params)


def refused(*words: str) -> str:
    """The last line of what `simulate` says."""
    result = CliRunner().invoke(main, ["simulate", *RUN, *words])
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr.splitlines()[-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wan.toml"


# --- a value


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (("--set", "jitter=2ms"), "link_jitter", 2_000_000),
        (("--set", "rate=1Gbit"), "link_rate", 10**9),
        (("--set", "sack=no"), "tcp_sack", False),
        (("--set", "random=yes"), "workload_access", "random"),
        (("--set", "mirror=yes"), "workload_layout", "mirror"),
        (("--set", "target-delay=1ms", "--set", "target-delay=2ms"), "link_target_delays", (1_000_000, 2_000_000)),
        (("--set", "queue-depth=2", "--set", "queue-depth=8"), "workload_queue_depth", 8),
        (("--set", "target-tcp=nagle=no"), "target_tcp", (("target.tcp.nagle", False),)),
    ],
)
def test_a_setting_is_the_option_of_its_name(words: tuple[str, ...], key: str, value: Any) -> None:
    assert taken(*words)[key] == value
    assert taken()[key] != value


def test_every_setting_without_an_option_is_set_by_its_name() -> None:
    """Each has another value than its default with one of these texts."""
    texts = (
        "yes",
        "no",
        "7",
        "1ms",
        "64K",
        "1%",
        "1%,2ms",
        "1%,2%",
        "apart",
        "turn",
        "reverse",
        "none",
        "1Mbit",
    )
    for name, setting in simulate.command.unseen.items():
        defaults = taken()
        found = []
        for text in (*texts, "joe%twelve-bytes", "4096", "crc32c", "nagle=no", "MaxBurstLength=64K"):
            try:
                found.append(taken("--set", f"{name}={text}")[str(setting.name)])
            except click.UsageError:
                continue
        assert any(each != defaults[str(setting.name)] for each in found), name


def test_the_command_line_overrides_the_file_and_the_file_the_defaults(file: Path) -> None:
    file.write_text('rate = "1Mbit"\njitter = "1ms"\nqueue-depth = 3\nrandom = true\nlun = ["1G", "2G"]\nloss = 0.01\n')
    found = taken("--settings", str(file), "--rate", "5Mbit", "--set", "jitter=5ms")
    assert (found["link_rate"], found["link_jitter"]) == (5 * 10**6, 5_000_000)
    assert (found["workload_queue_depth"], found["workload_access"], found["link_loss"]) == (3, "random", 0.01)
    assert [unit["size_bytes"] for unit in found["logical_units"]] == [1 << 30, 2 << 30]
    assert found["workload_block_size"] == 65_536
    # of what can be repeated, too, the command line has all
    assert len(taken("--settings", str(file), "--lun", "3G")["logical_units"]) == 1
    assert len(taken("--settings", str(file), "--set", "lun=3G")["logical_units"]) == 1


def test_a_setting_that_the_help_does_not_show_is_an_option_too() -> None:
    for words, told in (
        (("--jitter", "2ms"), "jitter=2ms"),
        (("--no-sack",), "sack=no"),
        (("--mirror",), "mirror=yes"),
    ):
        assert taken(*words) == taken("--set", told) != taken()


# --- mistakes


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--set", "jiter=2ms"), "Error: --set jiter: there is no such setting; did you mean jitter?"),
        (("--set", "zzz=1"), "Error: --set zzz: there is no such setting; --print-settings lists them"),
        (("--set", "jitter=2"), "Error: --set jitter: '2' is not a time like"),
        (("--set", "sack=maybe"), "Error: --set sack: 'maybe' is not yes or no (in TOML true or false)"),
        (("--set", "jitter"), "Error: --set takes NAME=VALUE, not 'jitter'"),
        (("--rate", "1Mbit", "--set", "rate=2Mbit"), "Error: rate is set twice: by --rate and by --set"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(words: tuple[str, ...], line: str) -> None:
    assert refused(*words).startswith(line)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('jiter = "2ms"', "jiter: there is no such setting; did you mean jitter?"),
        ("jitter = 2", "jitter: '2' is not a time"),
        ("jitter = true", "jitter: 'yes' is not a time"),
        ('jitter = ["1ms"]', "jitter: ['1ms'] is not a value"),
        ("random = 1", "random: '1' is not yes or no"),
        ("lun = [[1]]", "lun: [[1]] is not one value or more"),
        ("lun = []", "lun: [] is not one value or more"),
        ("[link]\njitter = 1", "link: there is no such setting"),
        ("jitter: 2ms", "not TOML: "),
        (None, "No such file or directory"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(file: Path, text: str | None, problem: str) -> None:
    if text is not None:
        file.write_text(text)
    line = refused("--settings", str(file))
    assert str(file) in line
    assert problem in line


def test_what_a_program_does_not_have_is_refused_from_a_file_too(file: Path) -> None:
    file.write_text("verify = true\n")
    result = CliRunner().invoke(main, ["lab", "run", *RUN, "--world", "guests", "--settings", str(file)])
    assert (result.exit_code, "--set verify does not work with guests" in result.stderr) == (2, True)


# --- the list


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_every_setting_with_its_meaning_and_is_a_file_of_settings(name: str, file: Path) -> None:
    result = CliRunner().invoke(main, [*name.split(), "--print-settings"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    for setting_name, setting in settings_of(name).settings.items():
        (place,) = [number for number, line in enumerate(lines) if line.startswith(f"# {setting_name} =")]
        assert lines[place - 1].startswith(f"# {setting.help}")
    # defaults are comments
    assert tomllib.loads(result.stdout) == {}
    # and right: without the signs of comments they change nothing
    values = [line[2:] for line in lines if " = " in line and line.startswith("# ") and not line.endswith("=")]
    file.write_text("\n".join(line for line in values if line.partition(" = ")[0] in settings_of(name).settings))
    assert tomllib.loads(file.read_text()).keys() <= settings_of(name).settings.keys()
    if name == "simulate":
        assert taken("--settings", str(file)) == taken()


def test_the_list_shows_what_is_set_and_is_read_back(file: Path) -> None:
    words = (
        *("--rate", "1Gbit", "--random", "--queue-depth", "8", "--lun", "1G", "--lun", "ram:2M"),
        *("--set", "jitter=2ms", "--set", "sack=no", "--set", "mirror=yes", "--set", "target-tcp=mss=536"),
    )
    result = CliRunner().invoke(main, ["simulate", "read", "--print-settings", *words])
    assert tomllib.loads(result.stdout) == {
        "rate": "1Gbit", "random": True, "queue-depth": 8, "lun": ["1G", "ram:2M"], "jitter": "2ms", "sack": False,
        "mirror": True, "target-tcp": ["mss=536"],
    }  # fmt: skip
    file.write_text(result.stdout)
    assert taken("--settings", str(file)) == taken(*words)


def test_a_wrong_value_is_not_printed() -> None:
    result = CliRunner().invoke(main, ["simulate", "--print-settings", "--rate", "fast"])
    assert (result.exit_code, result.stdout, "'fast' is not a rate" in result.stderr) == (2, "", True)


# --- the help


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_has_at_most_32_options(name: str) -> None:
    command = settings_of(name)
    context = click.Context(command, info_name=name)
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    shown = [each for each in options if each.get_help_record(context)]
    assert len(shown) <= 32
    assert {"told", "file", "is_printing"} <= {each.name for each in shown}
    text = command.get_help(context)
    assert not any(f"--{setting} " in text.partition("Options:")[2] for setting in command.unseen)


@pytest.mark.parametrize("name", COMMANDS)
def test_names_are_unique_and_options_are_of_settings(name: str) -> None:
    command = settings_of(name)
    names = [name_of(each) for section in command.sections for each in section.options]
    assert len(names) == len(set(names))
    keys = [each.name for each in command.params]
    assert len(keys) == len(set(keys))


def test_a_name_takes_the_same_kind_of_value_in_every_command() -> None:
    """But for the congestion control of a kernel, which may have more."""
    kinds: dict[str, set[tuple[str, bool]]] = {}
    for name in COMMANDS:
        command = settings_of(name)
        for setting_name, setting in command.settings.items():
            kind = (value_name(setting, click.Context(command)), setting.multiple)
            kinds.setdefault(setting_name, set()).add(kind)
    assert [name for name, found in kinds.items() if len(found) > 1] == ["congestion-control"]


def test_pings_and_discovery_have_no_workload() -> None:
    workload = {"block-size", "queue-depth", "bytes", "seconds", "verify"}
    assert workload <= settings_of("initiator read").settings.keys()
    for name in ("initiator ping", "initiator discover"):
        assert not workload & settings_of(name).settings.keys()
    assert "ping-count" not in settings_of("initiator read").settings
    assert "ping-count" not in settings_of("initiator discover").settings
