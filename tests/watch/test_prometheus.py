"""A real Prometheus scrapes watches of captures with known problems: the alerts fire, each dashboard query has data."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from iscsitrace.tables.passes import SECOND_NS
from tests.support.capture_file import drops, read_records, write_pcapng
from tests.support.conversation import Conversation
from tests.support.hangs import cut_in_a_read
from tests.support.pdu import Task
from tests.watch.test_watch import sample_of

GRAFANA = Path(__file__).parents[2] / "plugins" / "grafana"
ALERTS, DASHBOARD = GRAFANA / "alerts.yml", GRAFANA / "dashboard.json"
PROMETHEUS, PROMTOOL = shutil.which("prometheus") or "prometheus", shutil.which("promtool") or "promtool"
_LIMIT_S = 25.0

EXPECTED = {
    "IscsiNoProgress": {"hang"},
    "IscsiOutage": {"hang", "outage"},
    "IscsiCommandErrors": {"errors"},
    "IscsiLatencyHigh": {"latency"},
    "IscsiRetransmissions": {"loss"},
    "IscsitraceCaptureDrops": {"drops"},
    "IscsitraceDown": {"gone"},
}
"""The watches for which each alert has to fire. Nobody is too slow here: of `IscsitraceCannotKeepUp` see below."""


def test_the_rules_and_the_metrics_are_as_prometheus_wants_them(tmp_path: Path) -> None:
    checked = subprocess.run([PROMTOOL, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    names = {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
    assert names == {*EXPECTED, "IscsitraceCannotKeepUp"}
    assert all(f"`{name}`" in (GRAFANA / "README.md").read_text() for name in names)


def test_the_dashboard_is_whole() -> None:
    """What Grafana needs of a dashboard's JSON; panels lie beside each other."""
    board = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    known = {each["name"] for each in board["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    numbers = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        numbers.add(panel["id"])
        assert panel["type"] in {"stat", "timeseries", "heatmap", "table"}
        for target in panel["targets"]:
            used = set(re.findall(r"\$\{?(\w+)", target["expr"] + target["datasource"]["uid"]))
            assert used <= known | {"__rate_interval", "__range"}
    assert len(numbers) == len(board["panels"])


# --- watches of problems


@dataclass
class Feed:
    """A capture in two parts; the second one comes when Prometheus has seen the first."""

    first: bytes
    rest: bytes
    pipe: Path
    end: int = -1
    process: subprocess.Popen[str] | None = None
    port: int = 0
    goes_on: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Writes beside the test, which may pause: a capture that pauses within a command is one that hangs."""
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        for part in (self.first, self.rest):
            left = memoryview(part)
            while left:
                left = left[os.write(self.end, left) :]
            self.goes_on.wait()


def _parts(source: Path, folder: Path, share: float | None, more: bytes = b"") -> tuple[bytes, bytes]:
    """A share of the packets and the others; None: those before the longest pause."""
    records, link_type = read_records(source)
    first, whole = folder / f"{folder.name}.first", folder / f"{folder.name}.whole"
    if share is None:
        pauses = [after.time_ns - before.time_ns for before, after in itertools.pairwise(records)]
        count = pauses.index(max(pauses)) + 1
    else:
        count = int(len(records) * share)
    write_pcapng(first, records[:count], link_type)
    write_pcapng(whole, records, link_type)
    head, content = first.read_bytes(), whole.read_bytes()
    assert content.startswith(head)
    return head, content[len(head) :] + more


def _slow(file: Path) -> Path:
    """Reads of 5 ms for three seconds, then of 300 ms for nine."""
    conversation = Conversation()
    fast, slow = Task("read", service_ns=5_000_000), Task("read", service_ns=300_000_000)
    conversation.session().login().tasks([fast] * 600).tasks([slow] * 30).logout()
    capture = conversation.run()
    return write_pcapng(file, capture.packets, capture.path.link_type)


def _steady(file: Path) -> Path:
    """Reads and writes without a problem, and a pause."""
    conversation = Conversation()
    session = conversation.session().login().read(count=200).write(count=20)
    session.pause(3 * SECOND_NS).read(count=200).write(count=20).logout()
    capture = conversation.run()
    return write_pcapng(file, capture.packets, capture.path.link_type)


@pytest.fixture(scope="module")
def feeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Feed]]:
    """A watch for each problem, and one of a healthy capture."""
    folder = tmp_path_factory.mktemp("fleet")
    hang = folder / "hang.pcapng"
    cut_in_a_read(hang)
    steady = _steady(folder / "steady.pcapng")
    sources: dict[str, tuple[Path, float | None, bytes]] = {
        "hang": (hang, 0.7, b""),
        "outage": (sample_of("black-out-and-relogin"), 0.1, b""),
        "errors": (sample_of("medium-error"), 0.2, b""),
        "loss": (sample_of("loss-1-percent"), 0.3, b""),
        "latency": (_slow(folder / "slow.pcapng"), 0.7, b""),
        "drops": (steady, None, drops(7)),
        "healthy": (steady, None, b""),
    }
    found = {}
    try:
        for name, (source, share, more) in sources.items():
            own = folder / name
            own.mkdir()
            feed = Feed(*_parts(source, own, share, more), own / "pipe")
            os.mkfifo(feed.pipe)
            # both directions: the pipe stays open when its content was read
            feed.end = os.open(feed.pipe, os.O_RDWR)
            words = ["watch", "--json", "--interval", "500ms", "--prometheus", "0", str(feed.pipe)]
            feed.process = subprocess.Popen(
                [sys.executable, "-m", "iscsitrace", *words],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            found[name] = feed
        for feed in found.values():
            assert feed.process is not None
            assert feed.process.stderr is not None
            said = feed.process.stderr.readline()
            match = re.search(r":(\d+)/metrics", said)
            assert match, said
            feed.port = int(match[1])
        yield found
    finally:
        for feed in found.values():
            if feed.process is not None:
                feed.process.kill()
                feed.process.communicate()
            os.close(feed.end)


class Server:
    """A Prometheus of the watches."""

    def __init__(self, folder: Path, feeds: dict[str, Feed], gone: int) -> None:
        rules = folder / "alerts.yml"
        # alerts fire as soon as their condition holds
        rules.write_text(re.sub(r"(?m)^( *)for: .*\n", "", ALERTS.read_text()))
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": name}}
            for name, port in [*((name, feed.port) for name, feed in feeds.items()), ("gone", gone)]
        ]
        config = folder / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "500ms"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [{"job_name": "iscsitrace", "static_configs": targets}],
                }
            )
        )
        self.address = f"127.0.0.1:{_free_port()}"
        words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error"]
        self.process = subprocess.Popen([PROMETHEUS, *words, f"--web.listen-address={self.address}"])

    def get(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def firing(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], set()).add(alert["labels"]["instance"])
        return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _until(condition: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + _LIMIT_S
    while time.monotonic() < until_s:
        try:
            if condition():
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def server(feeds: dict[str, Feed], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """After the problems happened."""
    made = Server(tmp_path_factory.mktemp("prometheus"), feeds, _free_port())
    try:
        for feed in feeds.values():
            feed.start()

        def has_seen_all() -> bool:
            return {each["metric"]["instance"] for each in made.query("iscsitrace_commands_total")} == feeds.keys()

        assert _until(has_seen_all)
        for feed in feeds.values():
            feed.goes_on.set()

        def has_fired_all() -> bool:
            firing = made.firing()
            return all(names <= firing.get(alert, set()) for alert, names in EXPECTED.items())

        assert _until(has_fired_all), json.dumps({name: sorted(own) for name, own in made.firing().items()})
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def test_every_alert_fires_where_it_should(server: Server) -> None:
    firing = server.firing()
    for alert, names in EXPECTED.items():
        assert names <= firing[alert]
    # what the healthy capture shows is no problem of it; that its end is awaited is no outage
    told = {alert for alert, names in firing.items() if "healthy" in names}
    assert told == set()
    # an alert of one watch is not that of another; losses make latencies long, too
    for alert in ("IscsiCommandErrors", "IscsiRetransmissions", "IscsitraceCaptureDrops", "IscsitraceDown"):
        assert firing[alert] == EXPECTED[alert]


def test_every_query_of_the_dashboard_returns_data(server: Server) -> None:
    board = json.loads(DASHBOARD.read_text())
    values = {"__rate_interval": "1m", "__range": "1h", "initiator": ".*", "target": ".*", "portal": ".*"}
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 30
    for query in queries:
        expression = re.sub(r"\$(\w+)", lambda name: values[name[1]], query)
        found: list[dict[str, Any]] = []

        def has_data(expression: str = expression, found: list[dict[str, Any]] = found) -> bool:
            found[:] = server.query(expression)
            return bool(found)

        # a rate needs two scrapes of a series, and an alert fires after one
        assert _until(has_data), expression
        assert all(each["value"][1] != "NaN" for each in found) or "quantile" in expression
    for variable in board["templating"]["list"][1:]:
        label = variable["name"]
        assert server.get(f"label/{label}/values", **{"match[]": "iscsitrace_sessions"}), label


def test_a_watch_that_lags_fires_by_its_condition(server: Server) -> None:
    """The rule's condition, with the numbers of a watch that keeps up: no result; with a lag of 3 s: one."""
    (rule,) = [
        rule
        for group in yaml.safe_load(ALERTS.read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == "IscsitraceCannotKeepUp"
    ]
    assert server.query(rule["expr"]) == []
    late = rule["expr"].replace("iscsitrace_lag_seconds", "(iscsitrace_lag_seconds + 3)")
    assert len(server.query(late)) == 7


def test_the_served_metrics_are_clean(feeds: dict[str, Feed], server: Server) -> None:
    for feed in feeds.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{feed.port}/metrics", timeout=10) as answer:
            text = answer.read()
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
