"""``iscsitrace explain``: the page of every name that is printed."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from iscsitrace._core import login_keys
from iscsitrace.cli import main
from iscsitrace.diagnosis.registry import PROBLEMS
from iscsitrace.show import explain as explained
from iscsitrace.taps import places
from iscsitrace.watch import columns as watch_columns
from iscsitrace.wording.rules import rules
from tests.support import headings

DOCS = Path(__file__).parents[2] / "docs/diagnosis.md"


def explain(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["explain", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_page_of_a_finding_is_that_of_the_docs(name: str) -> None:
    code, text = explain(name)
    assert code == 0
    _, rest = DOCS.read_text().split(f"\n### {name}\n\n")
    page = rest.partition("\n#")[0].replace("`", "").replace("**", "")
    # the same sentences, with other marks of lists
    for line in filter(None, (line.strip().removeprefix("- ") for line in page.splitlines())):
        assert line in text or line == "Advice:"
    assert all(
        f"  {number}. {each.text}".replace("`", "") in text for number, each in enumerate(PROBLEMS[name].advice, 1)
    )


def test_the_rank_tells_when_a_finding_is_a_note() -> None:
    ranks = {
        name: next(text for fact, text in explained.facts(each) if fact == "Rank") for name, each in PROBLEMS.items()
    }
    for name, problem in PROBLEMS.items():
        # by the rule of the findings themselves, at a share too small for users to notice
        is_note = problem._severity(problem.rank, 0.1) == "info"
        assert ("below that a note" in ranks[name]) == (problem.rank == "slowness" and is_note), name
    assert "unless the condition says otherwise" in ranks["slow_target"]
    assert ranks["latency_outliers"] == "a problem"


def test_another_name_is_refused_with_names_like_it() -> None:
    code, text = explain("losses_of")
    assert code == 2
    assert "nothing is called 'losses_of'; names like it: " in text


def test_every_name_that_is_printed_has_a_page() -> None:
    names = explained.names(PROBLEMS)
    assert len(names) > 500
    sections = {name: explained.page(name, PROBLEMS) for name in names}
    assert [name for name, own in sections.items() if not all(each.title and each.blocks for each in own)] == []


def test_every_heading_of_a_table_has_a_page() -> None:
    found = [*headings.of_tables(), *(each.heading for each in watch_columns.COLUMNS)]
    assert len(found) > 100
    assert [heading for heading in found if not explained.page(heading, PROBLEMS)] == []


@pytest.mark.parametrize("name", ["lost_between_taps", "capture_lacks_packets", "queue_between_taps", "slow_at_target"])
def test_findings_of_several_taps_have_a_page(name: str) -> None:
    assert "several taps" in explain(name)[1]


def test_findings_of_several_taps_are_declared() -> None:
    text = inspect.getsource(places)
    assert {*re.findall(r'PlaceFinding\("(\w+)"', text), *re.findall(r'"(slow_at_\w+)", "the', text)} == {
        *places.FINDINGS
    }


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("rexmt", "flag: "),
        ("no status", "commands without a status"),
        ("k", "one-way delays of a command"),
        ("d", "one-way delay"),
        ("RTT", "round-trip time"),
        ("lost s", "time that the finding cost"),
        ("read % of line", "share of the line's rate"),
        ("held by target's TCP", "the target's TCP held back"),
    ],
)
def test_short_words_of_tables_are_explained(name: str, meaning: str) -> None:
    assert meaning in explain(name)[1]


@pytest.mark.parametrize(
    "name", ["network RTT", "Target Service", "transfer", "QD", "queue depth", "outage", "tcp_reset"]
)
def test_words_of_the_output_are_explained(name: str) -> None:
    code, text = explain(name)
    assert code == 0
    assert len(text.split()) > 4


@pytest.mark.parametrize(
    ("names", "meaning"),
    [
        (("propagation", "network RTT", "network_rtt", "Network RTT"), "network delay in both directions"),
        (("initiator_think", "initiator idle", "initiator_idle"), "only pauses of up to 100 ms"),
        (("status wait", "Status wait"), "Heading of cycles, column status_wait_ns: "),
        (("QD",), "Heading of cycles, column queue_depth: "),
        (("clock offset", "clock offset ms"), "Heading of taps, column clock_offset_ns: "),
        (("clock drift", "clock drift ppm"), "Heading of taps, column drift_ppm: "),
        (("Jain's fairness index", "jain's fairness index"), "how evenly connections shared the load"),
        (("PDUs",), "Heading of cycles, column data_pdu_count: "),
    ],
)
def test_names_of_screen_and_json_have_one_page(names: tuple[str, ...], meaning: str) -> None:
    pages = {explain(name) for name in names}
    assert len(pages) == 1
    ((code, text),) = pages
    assert code == 0
    assert meaning in text


def test_a_part_of_the_time_is_a_cost_by_both_names() -> None:
    for cost in ("propagation", "network_rtt"):
        result = CliRunner().invoke(main, ["fleet", "top", "no-dataset", "--cost", cost])
        assert "no-dataset" in result.stderr
        assert "is not one of" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "diagnose --fail-on error",
            "'error' is neither any nor a finding; names like it: digest_errors, command_errors",
        ),
        ("diagnose --fail-on losss", "names like it: loss, ack_loss; `iscsitrace docs diagnosis` lists all"),
        ("conformance --rule D99", "'D99' is not a rule; names like it: D9, D19; `iscsitrace docs conformance` lists"),
    ],
)
def test_a_wrong_name_is_a_short_line_with_names_like_it(arguments: str, said: str) -> None:
    result = CliRunner().invoke(main, [*arguments.split(), "a.pcap"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr) < 300


def test_a_word_of_a_name_leads_to_it() -> None:
    code, text = explain("think")
    assert code == 2
    assert "initiator_think_time" in text


def test_a_counter_has_its_advice() -> None:
    code, text = explain("routed_copy")
    assert code == 0
    assert "packets captured before and behind a router" in text
    assert "What to do: Capture on one side of the router." in text


def test_a_column_is_named_alone_or_behind_its_table() -> None:
    _, alone = explain("frame_first")
    _, of_table = explain("logical_units.frame_first")
    assert "logical_units.frame_first" in of_table
    assert of_table.strip() in alone
    assert alone.count("Column: ") > of_table.count("Column: ") == 1


def test_a_name_of_several_things_has_the_page_of_each() -> None:
    _, text = explain("rtt")
    assert "Table: " in text
    assert "Plot: " in text


@pytest.mark.parametrize(("name", "other"), [("problem", "Heading: "), ("unknown", "Part of the time breakdown")])
def test_a_verdict_is_explained_beside_its_other_meaning(name: str, other: str) -> None:
    _, text = explain(name)
    assert "the verdict" in text
    assert other in text


def test_a_rule_may_be_in_small_letters() -> None:
    assert explain("d18") == explain("D18")
    assert "RFC 7143 section 11.4.5" in explain("d18")[1]


def test_a_name_of_several_words_needs_no_quotes() -> None:
    quoted, bare = (
        CliRunner().invoke(main, ["explain", *words]) for words in (["initiator idle"], ["initiator", "idle"])
    )
    assert bare.exit_code == 0
    assert bare.stdout == quoted.stdout


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        # words of sentences and captions
        ("by place", "the network, the target and the initiator's host"),
        ("pace", "bytes of reads and writes over their I/O time"),
        ("scatter", "differ"),
        ("MaxCmdSN", "the end of the command window"),
        ("maxcmdsn", "the end of the command window"),
        ("Target Transfer Tag", "an R2T"),
        ("NOP-Out", "the target is there"),
        ("Padhye (PFTK) %", "with time-outs"),
        ("healthy", "verdict that nothing is wrong"),
        ("limited", "verdict that I/O is as fast as"),
        ("spurious", "the bytes had arrived"),
        ("long recovery", "200 ms or more"),
        ("reinstated", "the same names and ISID"),
        ("MaxBurstLength", "Value: 512 to 16777215"),
    ],
)
def test_words_of_sentences_are_explained(name: str, meaning: str) -> None:
    code, text = explain(name)
    assert code == 0
    assert meaning in text
    assert "Heading: " not in text


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("rule D9", "D9"), ("Rule d9", "D9"), ("counter routed_copy", "routed_copy"), ("heading p50", "p50"),
        ("term queue depth", "queue depth"), ("login key MaxBurstLength", "MaxBurstLength"),
    ],
)  # fmt: skip
def test_the_kind_may_stand_before_the_name(named: str, name: str) -> None:
    code, text = explain(*named.split())
    assert code == 0
    assert text.strip() in explain(name)[1]


def test_a_kind_picks_its_own_page() -> None:
    _, text = explain("table", "rtt")
    assert "Table: " in text
    assert "Plot: " not in text


@pytest.mark.parametrize("name", ["rule D99", "counter D9", "pace of D9", "rule of D9"])
def test_a_kind_without_such_a_name_is_refused(name: str) -> None:
    assert explain(*name.split())[0] == 2


def test_every_login_key_and_every_rule_as_sentences_name_it_has_a_page() -> None:
    names = [key["name"] for key in login_keys()] + [f"rule {name}" for name in rules()]
    assert [name for name in names if not explained.page(name, PROBLEMS)] == []
