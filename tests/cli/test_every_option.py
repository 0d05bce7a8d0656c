"""Facts that hold for the options of every command: what they take, how often, and between which limits."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from iscsitrace.cli import main


def commands_of(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(commands_of(main))


def options_of(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def typed(command: click.Command, *words: str) -> dict[str, Any]:
    """The values that a command line sets, before they are converted."""
    values, _, _ = command.make_parser(click.Context(command)).parse_args([*words])
    return dict(values)


def is_taken(option: click.Parameter, text: str) -> bool:
    try:
        option.type.convert(text, option, None)
    except click.BadParameter:
        return False
    return True


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flag_takes_no_value_and_other_options_take_one(name: str) -> None:
    """A flag sets a parameter that is a yes or no: by its annotation, else by its name."""
    command = COMMANDS[name]
    assert command.callback is not None
    parameters = inspect.signature(command.callback).parameters
    for option in options_of(command):
        key = str(option.name)
        if key in parameters:
            is_flag = parameters[key].annotation in ("bool", "bool | None")
        elif key in ("read_files", "capture_filter", "packet_limit", "time_from", "time_to", "is_numeric", "is_quiet"):
            is_flag = key in ("is_numeric", "is_quiet")
        else:
            continue
        try:
            typed(command, option.opts[0])
        except click.BadOptionUsage:
            assert not is_flag, (name, key)
        else:
            assert is_flag, (name, key)
        if is_flag:
            assert option.get_default(click.Context(command)) in (None, False), (name, key)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_of_a_command_has_an_option_or_an_argument(name: str) -> None:
    callback = COMMANDS[name].callback
    assert callback is not None
    gathered = {"capture_input", "values"}
    assert set(inspect.signature(callback).parameters) - gathered <= {str(each.name) for each in COMMANDS[name].params}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_type_of_a_parameter_fits_its_option(name: str) -> None:
    """A tuple comes from an option that is repeated; None means that the option was omitted; a path is no text."""
    command = COMMANDS[name]
    assert command.callback is not None
    parameters = inspect.signature(command.callback).parameters
    for option in options_of(command):
        if str(option.name) not in parameters:
            continue
        kind = str(parameters[str(option.name)].annotation)
        where = (name, option.name)
        assert option.multiple == kind.startswith("tuple[") * (not kind.endswith("| None")), where
        default = option.get_default(click.Context(command), call=True)
        has_value = default is not None and "UNSET" not in repr(default)
        if kind.endswith("| None"):
            assert (has_value, option.required) == (False, False), where
        elif kind != "bool" and not option.multiple:
            assert has_value != option.required, where
        if "Path" in kind:
            assert isinstance(option.type.convert("nowhere", option, None), Path), where


def test_what_can_be_repeated_in_every_command_that_reads_or_makes_traffic() -> None:
    repeated = {
        "summary": ("-r",), "diagnose": ("--fail-on",), "cycles": ("--operation",), "capture": ("-i", "-r", "-a", "-b"),
        "model fit": ("--socket",), "model predict": ("--target-delay",), "initiator read": ("--key",),
        "watch": ("-a",),
        "target": ("--lun", "--chap", "--fault", "--target-key", "--listen"), "lab run NAME": ("--arm",),
        "simulate": ("--lun", "--fault", "--key", "--target-delay", "--set"),
    }  # fmt: skip
    for name, spellings in repeated.items():
        for spelling in spellings:
            (option,) = (each for each in options_of(COMMANDS[name]) if spelling in each.opts)
            assert option.multiple, (name, spelling)
            assert typed(COMMANDS[name], spelling, "1", spelling, "2")[str(option.name)] == ["1", "2"]


FROM_ZERO = ("lun", "connection", "session", "session_a", "session_b", "cycle", "seed")
FROM_ONE = ("packet_limit", "top", "frame", "snaplen", "buffer_mib", "ping_count", "jobs")


def test_sessions_and_commands_are_counted_from_zero_but_amounts_from_one() -> None:
    ranges = {
        (name, str(option.name)): option
        for name, command in COMMANDS.items()
        for option in options_of(command)
        if isinstance(option.type, click.IntRange)
    }
    seen = set()
    for (name, key), option in ranges.items():
        least = 0 if key in FROM_ZERO else 1 if key in FROM_ONE else None
        if least is not None:
            seen.add(key)
            limits = [is_taken(option, str(number)) for number in (least - 1, least)]
            assert limits == [False, True], (name, key)
    assert seen == {*FROM_ZERO, *FROM_ONE}


@pytest.mark.parametrize(
    ("name", "key", "most"),
    [
        ("capture", "buffer_mib", 2047), ("lab run NAME", "jobs", 256), ("simulate", "seed", 1 << 32),
        ("lab run", "seed", 1 << 32), ("target", "max_connections", 65_535),
    ],
)  # fmt: skip
def test_the_largest_number_that_an_option_takes(name: str, key: str, most: int) -> None:
    (option,) = (each for each in options_of(COMMANDS[name]) if each.name == key)
    assert [is_taken(option, str(number)) for number in (most, most + 1)] == [True, False]
    if key == "max_connections":
        assert [is_taken(option, text) for text in ("0", "1")] == [False, True]


def test_a_link_lasts_longer_than_no_time() -> None:
    (seconds,) = (each for each in options_of(COMMANDS["link"]) if each.name == "seconds")
    assert [is_taken(seconds, text) for text in ("0", "0.001", "-1", "1e9")] == [False, True, False, True]


@pytest.mark.parametrize("name", ["plot", "model predict", "report", "export"])
def test_a_file_is_no_folder_and_a_folder_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (output,) = (each for each in options_of(COMMANDS[name]) if "--output" in each.opts)
    takes = [is_taken(output, str(tmp_path / each)) for each in ("", "file", "missing")]
    # an export is a folder of tables, or one file of a trace
    assert takes == ([True, True, True] if name == "export" else [False, True, True])


def test_the_defaults_of_a_run() -> None:
    """As the help says: what an option is when it is omitted, in nanoseconds, bytes or plain numbers."""
    defaults: dict[str, dict[str, Any]] = {
        "initiator read": {"seed": 1},
        "initiator ping": {"ping_count": 10, "ping_interval_ns": 100_000_000, "ping_size": 64},
        "capture": {
            "learn_every": 30 * 10**9, "before": 2 * 10**9, "after": 10**9, "trigger_memory": 256 << 20,
            "buffer_mib": 64, "dumpcap": "auto", "comment": "",
        },
        "watch": {"interval": 10**9}, "link": {"seed": 1}, "simulate": {"seed": 1, "block_length": "512"},
        "lab run NAME": {"world": "simulated", "keep": "figures"}, "check": {"fail_on": "data_loss"},
    }  # fmt: skip
    for name, expected in defaults.items():
        options = {str(each.name): each for each in options_of(COMMANDS[name])}
        context = click.Context(COMMANDS[name])
        found = {key: options[key].type_cast_value(context, options[key].get_default(context)) for key in expected}
        assert found == expected


def test_a_unit_without_an_option_has_one_sparse_lun_of_a_gibibyte() -> None:
    options = {str(each.name): each for each in options_of(COMMANDS["target"])}
    context = click.Context(COMMANDS["target"])
    units, listen = (
        options[key].type_cast_value(context, options[key].get_default(context))
        for key in ("logical_units", "addresses")
    )
    assert (units, listen) == (({"medium": "sparse", "size_bytes": 1 << 30},), ("127.0.0.1:3260",))
