"""``iscsitrace initiator``: the reference initiator over this machine's TCP."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import click

from iscsitrace.cli.output import quiet
from iscsitrace.cli.process import StopWish, wishing
from iscsitrace.cli.sections import Function, OptionSection, decorated, option
from iscsitrace.cli.traffic import chap_options
from iscsitrace.cli.traffic.run_options import KEYS, SOCKETS, WORKLOAD, lasting
from iscsitrace.cli.traffic.settings_command import SettingsCommand, settings_section
from iscsitrace.cli.traffic.target_options import FaultOption, lists_faults
from iscsitrace.cli.units import Duration, Size
from iscsitrace.errors import TrafficImpossible
from iscsitrace.lab.settings import structs
from iscsitrace.lab.settings.table import MODES
from iscsitrace.show import run_results
from iscsitrace.show.line import ProgressBar
from iscsitrace.show.terminal import show_json

_EXIT_INTERRUPTED = 130
_PERIOD_NS = 2_000_000
"""Interval of samples when connections are recorded: short, so that few connections are missed."""
_SEED_BITS = 63


def _pings(*, ping_count: int, ping_interval_ns: int, ping_size: int) -> dict[str, Any]:
    return {"count": ping_count, "interval_ns": ping_interval_ns, "bytes": ping_size}


def _login(
    *,
    chap: tuple[chap_options.Account, ...],
    chap_of_target: chap_options.Account | None,
    chap_file: Path | None,
    allows_short: bool,
) -> dict[str, Any]:
    return {"chap": chap, "chap_of_target": chap_of_target, "chap_file": chap_file, "allows_short": allows_short}


CHAP = OptionSection(
    "CHAP",
    _login,
    *chap_options.options(
        "Name and secret for the target; one for all URLs. Without %SECRET it is that of the environment "
        "(ISCSITRACE_CHAP_SECRET), or asked for.",
        "Expected name and secret of the target, for mutual CHAP (ISCSITRACE_MUTUAL_CHAP_SECRET).",
    ),
)


PINGS = OptionSection(
    "Pings",
    _pings,
    option("--ping-count", type=click.IntRange(min=1), default=10, show_default=True, help="NOP-Outs per session."),
    option(
        "--ping-interval",
        "ping_interval_ns",
        type=Duration(),
        default="100ms",
        show_default=True,
        help="Time from one ping to the next.",
    ),
    option(
        "--ping-size", type=Size(), default="64", show_default=True, help="Data of a ping, which the target returns."
    ),
)


DESIGN = settings_section("Design", "initiator.driver", "initiator.receive")


def _faults(*, faults: tuple[Any, ...]) -> tuple[Any, ...]:
    return faults


FAULTS = OptionSection(
    "Faults",
    _faults,
    option(
        "--fault",
        "faults",
        type=FaultOption(on="initiator"),
        multiple=True,
        help="A rule of RFC 7143 that the initiator breaks, like S1 or D4,every=3. Repeatable.",
    ),
)
_LOGIN = (KEYS, SOCKETS, DESIGN, CHAP, FAULTS)
_SHOWN_OF_LOGIN = ("key", "header-digest", "data-digest", "chap", "chap-file", "fault")

_OWN = (
    click.argument("urls", metavar="URL...", nargs=-1, required=True),
    click.option("--initiator-name", metavar="IQN", help="InitiatorName."),
    click.option("--bind", "bind_address", metavar="ADDRESS", help="Local address of the connections."),
    click.option(
        "--follow-redirects",
        "follow_redirects",
        type=click.Choice(["same-network", "any", "none"]),
        default="same-network",
        show_default=True,
        help="Redirections of a login to follow: to the target's /24 (IPv6: /64), to any address, or none.",
    ),
    click.option(
        "--timeout", "timeout_ns", type=Duration(), help="Timeout of a login (15s), a command (30s) and a ping (5s)."
    ),
    click.option(
        "--tcp-info",
        "tcp_info_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write TCP_INFO every 20 ms, as JSON lines.",
    ),
    click.option(
        "--truth",
        "truth_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write every command, and TCP_INFO every 20 ms, as JSON.",
    ),
    click.option("--force", "is_forced", is_flag=True, help="Overwrite these files if they exist."),
    lists_faults("initiator"),
    click.option("--json", "is_json", is_flag=True, help="One JSON document with a schema number."),
    quiet("Show no progress bar."),
)


def _takes_urls(function: Function) -> Function:
    """Adds the URLs and the options of every use of the initiator."""
    return decorated(function, _OWN)


@click.command(
    cls=SettingsCommand,
    sections=(WORKLOAD, *_LOGIN),
    shown=(
        *("block-size", "queue-depth", "bytes", "seconds", "random", "read-share", "think-time"),
        *("connections", "sessions", "mirror", "verify", *_SHOWN_OF_LOGIN),
    ),
    epilog="Example:  iscsitrace initiator read iscsi://127.0.0.1:3260/iqn.2025-01.org.iscsitrace:memory/0 --seconds 2",
)
@_takes_urls
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of random addresses and of mixed workloads.",
)
def workload(seed: int, **values: Any) -> None:
    """Run a workload against targets, and print the results.

    With several URLs the workload is striped over the targets, or mirrored (--mirror). Without --bytes and --seconds
    it lasts 5 s. Ctrl-C ends it in order.
    """
    mode = str(click.get_current_context().info_name)
    wanted = structs.listed(structs.workload_of(WORKLOAD.take(values)) | {"seed": seed})
    _carry_out(mode, {"mode": "run", "workload": lasting(wanted) | {"operation": mode}}, **values)


@click.command(
    cls=SettingsCommand,
    sections=_LOGIN,
    shown=_SHOWN_OF_LOGIN,
    epilog="Example:  iscsitrace initiator discover iscsi://127.0.0.1:3260",
)
@_takes_urls
def discover(**values: Any) -> None:
    """List the targets of portals. A URL needs no target: iscsi://HOST."""
    _carry_out("discover", {"mode": "discover"}, **values)


@click.command(
    cls=SettingsCommand,
    sections=(PINGS, *_LOGIN),
    shown=("ping-count", "ping-interval", "ping-size", *_SHOWN_OF_LOGIN),
    epilog="Example:  iscsitrace initiator ping iscsi://127.0.0.1:3260/iqn.2025-01.org.iscsitrace:memory/0",
)
@_takes_urls
def ping(**values: Any) -> None:
    """Send NOP-Outs to targets, and print how long their answers take."""
    _carry_out("ping", {"mode": "ping", "ping": PINGS.take(values)}, **values)


@click.group(
    epilog="Example:  iscsitrace initiator read iscsi://127.0.0.1:3260/iqn.2025-01.org.iscsitrace:memory/0 --seconds 2"
)
def command() -> None:
    """Use targets over this machine's TCP: run a workload, list the targets of a portal, or ping.

    URL: iscsi://[user[%password]@]host[:port]/target/lun. Append ?target_user=NAME&target_password=SECRET for mutual
    CHAP, ?header_digest=crc32c and the like for login keys. Other users of this machine can see secrets in a URL: see
    --chap-file.

    Exit codes: 1 for failed commands or wrong data, 2 for a target that cannot be used.
    """


for _mode in MODES:
    command.add_command(workload, _mode)
command.add_command(discover)
command.add_command(ping)


def _carry_out(
    mode: str,
    client: dict[str, Any],
    *,
    urls: tuple[str, ...],
    initiator_name: str | None,
    bind_address: str | None,
    follow_redirects: str,
    timeout_ns: int | None,
    tcp_info_file: Path | None,
    truth_path: Path | None,
    is_forced: bool,
    is_json: bool,
    is_quiet: bool,
    **values: Any,
) -> None:
    from iscsitrace.lab import run_files, traffic
    from iscsitrace.lab.sock_diag import TcpSamples

    urls, login = _authenticated(urls, CHAP.take(values))
    client |= {
        "login": {"offers": structs.offers_of(KEYS.take(values))} | login,
        # runs at the same time need different ISIDs, and a challenge must not be predictable
        "isid_seed": secrets.randbits(_SEED_BITS),
        "challenge_seed": secrets.randbits(_SEED_BITS),
        "task_log": truth_path is not None,
        "follow_redirects": follow_redirects,
    }
    if initiator_name is not None:
        client["login"]["initiator_name"] = initiator_name
    if timeout_ns is not None:
        client["timeouts"] = dict.fromkeys(("login_ns", "task_ns", "nop_ns"), timeout_ns)
    _break_rules(client, FAULTS.take(values))
    settings = {
        "client": client,
        "sockets": SOCKETS.take(values) | {"bind_address": bind_address},
        "urls": [traffic.parse_url(url).resolved() for url in urls],
        **structs.programs_of(DESIGN.take(values)),
    }
    files = [file for file in (tcp_info_file, truth_path) if file]
    run_files.require_new(files, is_forced=is_forced)
    with ExitStack() as stack:
        lines = stack.enter_context(_created(tcp_info_file)) if tcp_info_file else None
        samples = TcpSamples(has_columns=truth_path is not None, lines=lines)
        wish = stack.enter_context(wishing())
        progress = ProgressBar(mode, is_wanted=not is_quiet)
        stack.callback(progress.close)
        watch = _watcher(wish, samples if files else None, progress)
        found = traffic.run_initiator(settings, watch, period_ns=_PERIOD_NS if files else traffic.PERIOD_NS)
    results = found["results"]
    if truth_path:
        run_files.write_truth(truth_path, _truth(settings, found, samples))
    if is_json:
        show_json(run_files.envelope("initiator") | run_results.describe_initiator(results))
    else:
        run_results.show_initiator(results)
    run_results.end_initiator(results)
    if wish.is_there:
        raise click.exceptions.Exit(_EXIT_INTERRUPTED)


def _break_rules(client: dict[str, Any], faults: tuple[Any, ...]) -> None:
    """Adds the rules that the initiator breaks."""
    from iscsitrace.lab import fault_catalogue as catalogue
    from iscsitrace.lab.faults.fault import INITIATOR_ALONE, Placed
    from iscsitrace.lab.run_files import INITIATOR

    if any(isinstance(each, dict) for each in faults):
        raise click.UsageError("faults of single commands are those of a target; --list-faults lists the initiator's")
    catalogue.require_in(INITIATOR_ALONE, faults, [INITIATOR])
    for number, each in enumerate(faults):
        each.kind.ours.apply({"client": client, "portals": []}, Placed(number, each, 0, INITIATOR_ALONE))


def _authenticated(urls: tuple[str, ...], given: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The URLs without users whose secret they lack, and the part of the login's settings with secrets."""
    allows_short = given["allows_short"]
    for url in urls:
        chap_options.require_length_in(url, allows_short=allows_short)
    parted = [chap_options.without_user(url) for url in urls]
    named = [account for _, account in parted if account]
    accounts = given["chap"] or (tuple(named[:1]) if given["chap_file"] is None else ())
    if any(account != named[0] for account in named):
        raise click.UsageError("the URLs have different users: name each secret in its URL")
    found = chap_options.gathered(accounts, given["chap_of_target"], given["chap_file"], allows_short=allows_short)
    if found is None:
        return urls, {}
    if len(found["initiators"]) > 1:
        raise click.UsageError("an initiator has one name and secret for CHAP")
    return tuple(url for url, _ in parted), {"chap": found["initiators"][0], "chap_of_target": found["target"]}


@contextmanager
def _created(file: Path) -> Iterator[IO[str]]:
    """A new file. It is removed when the block fails."""
    try:
        stream = file.open("x")
    except OSError as error:
        raise TrafficImpossible(f"cannot write {file}: {error.strerror}") from error
    try:
        with stream:
            yield stream
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def _watcher(wish: StopWish, samples: Any, progress: ProgressBar) -> Any:
    def watch(seen: dict[str, Any], descriptors: list[tuple[int, int, bool]]) -> bool:
        if samples is not None:
            samples.take(descriptors)
        progress.show_workload(seen)
        return wish.is_there

    return watch


def _truth(settings: dict[str, Any], found: dict[str, Any], samples: Any) -> dict[str, Any]:
    """The truth of a run; without its URLs, which hold secrets."""
    from iscsitrace.lab import run_files
    from iscsitrace.lab.real import without_secrets

    return run_files.envelope("initiator") | {
        "settings": {name: without_secrets(settings[name]) for name in ("client", "sockets", "driver", "receive")},
        "results": found["results"],
        "ends": list(samples.ends.values()),
        "cycles": run_files.initiator_cycles(found),
        "tcp_info": samples.columns,
    }
