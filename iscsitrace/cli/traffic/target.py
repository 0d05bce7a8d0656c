"""``iscsitrace target``: an in-memory target over this machine's TCP."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from iscsitrace.cli.process import wishing
from iscsitrace.cli.traffic.run_options import SOCKETS
from iscsitrace.cli.traffic.settings_command import SettingsCommand
from iscsitrace.cli.traffic.target_options import DEVICE, TARGET, faults_of, lists_faults, portal_of
from iscsitrace.cli.units import Quantity, Size
from iscsitrace.show import run_results
from iscsitrace.show.line import say
from iscsitrace.show.terminal import show_line
from iscsitrace.wording.quantities import parse_endpoint

_PORT = 3260
_IPV6 = 6
_PERIOD_NS = 50_000_000
_SEED_BITS = 63
_SESSIONS_MAX = 32_000


class Address(Quantity):
    """``ADDRESS[:PORT]``, an IPv6 address in brackets when a port follows, to a socket address."""

    name = "ADDRESS[:PORT]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address with its port; fails with a line that says how to write one."""
        found = parse_endpoint(value)
        if found is None:
            self.fail(f"{value!r} is not an address like 127.0.0.1:3260 or [::1]:3260", param, ctx)
        address, port = found[0], _PORT if found[1] is None else found[1]
        return f"[{address}]:{port}" if address.version == _IPV6 else f"{address}:{port}"


@click.command(
    cls=SettingsCommand,
    sections=(DEVICE, TARGET, SOCKETS),
    shown=(
        *("lun", "block-length", "name", "chap", "mutual-chap", "chap-file", "fault", "target-key"),
        *("status", "service-delay", "read-delay", "write-delay", "serial"),
    ),
    epilog="Example:  iscsitrace target --lun 1G --service-delay 30ms-40ms --listen 127.0.0.1:3260",
)
@click.option(
    "--listen",
    "addresses",
    type=Address(),
    multiple=True,
    default=(f"127.0.0.1:{_PORT}",),
    show_default=True,
    help="Address to listen at. Repeatable. Port 0 selects a free port.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of delays and orders. Random if not set.")
@click.option(
    "--truth",
    "truth_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every command as JSON at the end. Takes memory.",
)
@click.option("--force", "is_forced", is_flag=True, help="Overwrite that file if it exists.")
@click.option(
    "--max-sessions",
    type=click.IntRange(1, _SESSIONS_MAX),
    default=1024,
    show_default=True,
    help="Sessions at the same time; further logins are refused.",
)
@click.option(
    "--waiting-memory",
    "waiting_bytes",
    type=Size(),
    default="256M",
    show_default=True,
    help="Memory for data that waits for the network, or for its command's turn. Beyond it, reads are sent in short "
    "PDUs, and connections with such writes end.",
)
@lists_faults("target")
def command(
    addresses: tuple[str, ...],
    seed: int | None,
    truth_path: Path | None,
    is_forced: bool,
    max_sessions: int,
    waiting_bytes: int,
    **values: Any,
) -> None:
    """Serve logical units in memory until Ctrl-C or SIGTERM. Prints the URL for initiators when it is ready.

    By default it listens at the loopback address only: any host that reaches it can read and write.
    """
    from iscsitrace.lab import run_files, traffic
    from iscsitrace.lab.sock_diag import TcpSamples

    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    faults = faults_of(values)
    portal = portal_of(TARGET.take(values), DEVICE.take(values), 0, seed)
    if faults:
        from iscsitrace.lab import fault_catalogue as catalogue
        from iscsitrace.lab.faults.fault import TARGET as TARGET_ALONE
        from iscsitrace.lab.faults.settings import with_faults

        catalogue.require_in(TARGET_ALONE, faults, ["target"])
        (portal,) = with_faults({"portals": [portal]}, faults, TARGET_ALONE)["portals"]
    if portal["status"] == "apart_held" and values["is_nagle"] is None:
        values["is_nagle"] = True
    samples = TcpSamples()
    portal["limits"] = {"session_count": max_sessions, "waiting_bytes": waiting_bytes}
    if truth_path:
        run_files.require_new([truth_path], is_forced=is_forced)
    else:
        # without a truth the target must not use more and more memory
        portal["limits"] |= {"logged_task_count": 0, "logged_connection_count": 0}
    settings = {"portal": portal, "sockets": SOCKETS.take(values), "listen": list(addresses)}
    for address in addresses:
        endpoint = parse_endpoint(address)
        if endpoint and not endpoint[0].is_loopback:
            say(
                f"iscsitrace: {address} is not a loopback address: any host that reaches it can read and write",
                err=True,
            )
    name = portal["targets"][0]["target_name"]

    def ready(listening: list[str]) -> None:
        show_line("iscsitrace target: " + " ".join(f"iscsi://{address}/{name}/0" for address in listening))

    with wishing() as wish:

        def watch(_: dict[str, Any], descriptors: list[tuple[int, int, bool]]) -> bool:
            if truth_path:
                samples.take(descriptors)
            return wish.is_there

        found = traffic.run_target(settings, ready, watch, period_ns=_PERIOD_NS)
    if truth_path:
        run_files.write_truth(truth_path, _truth(settings, found, samples.ends))
    run_results.show_served(found["counters"])


def _truth(settings: dict[str, Any], found: dict[str, Any], ends: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The truth of a target, without secrets."""
    from iscsitrace.lab import run_files

    portal = {name: value for name, value in settings["portal"].items() if name != "chap"}
    for closed in found["connections"]:
        # a short connection may end between two samples
        end = ends.setdefault(closed["connection"], {"connection": closed["connection"]})
        if peer := parse_endpoint(closed["peer"]):
            end |= {"peer_address": str(peer[0]), "peer_port": peer[1]}
    return run_files.envelope("target") | {
        "settings": {**settings, "portal": portal},
        "ends": list(ends.values()),
        **run_files.target_log(found),
    }
