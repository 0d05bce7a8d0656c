"""How a target becomes LIO's saved configuration, and the commands of tgtadm."""

from __future__ import annotations

from iscsitrace.lab import peers
from iscsitrace.lab.guests import targets
from iscsitrace.lab.guests.targets import Wanted, disk_device, linear_table
from iscsitrace.lab.peers import ChapAccount

JOE, TARGET = ChapAccount("joe", "twelveletters"), ChapAccount("target", "twelveothers")
CHAP = {"chap_userid": "joe", "chap_password": "twelveletters"}
MUTUAL = {"chap_mutual_userid": "target", "chap_mutual_password": "twelveothers"}


def test_lio_serves_anybody_by_default() -> None:
    found = targets.lio_configuration(Wanted("iqn.x", "fd71::2", [1 << 20, 1 << 21], keys={"MaxBurstLength": "65536"}))
    assert [(each["name"], each["dev"]) for each in found["storage_objects"]] == [
        ("disk0", "/dev/mapper/disk0"), ("disk1", "/dev/mapper/disk1"),
    ]  # fmt: skip
    assert len({each["wwn"] for each in found["storage_objects"]}) == 2
    (target,) = found["targets"]
    (group,) = target["tpgs"]
    assert target["wwn"] == "iqn.x"
    assert [(lun["index"], lun["storage_object"]) for lun in group["luns"]] == [
        (0, "/backstores/block/disk0"), (1, "/backstores/block/disk1"),
    ]  # fmt: skip
    assert group["portals"][0]["ip_address"] == "[fd71::2]"
    assert group["parameters"] == {"MaxBurstLength": "65536"}
    assert group["attributes"] == {
        "authentication": 0, "generate_node_acls": 1, "cache_dynamic_acls": 1, "demo_mode_write_protect": 0,
    }  # fmt: skip
    assert group["node_acls"] == []
    assert "chap_userid" not in group


def test_lio_asks_everybody_or_those_it_knows_for_a_secret() -> None:
    (target,) = targets.lio_configuration(Wanted("iqn.x", "10.0.0.2", [512], accounts=[JOE], own_account=TARGET))[
        "targets"
    ]
    (group,) = target["tpgs"]
    assert group["attributes"]["authentication"] == 1
    assert {name: group[name] for name in CHAP | MUTUAL} == CHAP | MUTUAL
    (target,) = targets.lio_configuration(
        Wanted("iqn.x", "10.0.0.2", [512, 512], accounts=[JOE], initiators=["iqn.i"])
    )["targets"]
    (group,) = target["tpgs"]
    assert (group["attributes"]["generate_node_acls"], group["attributes"]["cache_dynamic_acls"]) == (0, 0)
    (acl,) = group["node_acls"]
    assert acl["node_wwn"] == "iqn.i"
    assert [(lun["index"], lun["tpg_lun"], lun["write_protect"]) for lun in acl["mapped_luns"]] == [
        (0, 0, False),
        (1, 1, False),
    ]
    assert {name: acl[name] for name in CHAP} == CHAP
    assert "chap_userid" not in group


def test_tgt_is_set_up_by_commands() -> None:
    said: list[tuple[str, ...]] = []
    peers.set_up_tgt(
        lambda *words: said.append(words),
        name="iqn.x", disks=["/dev/a", "/dev/b"], accounts=[JOE], own_account=TARGET, keys={"InitialR2T": "No"},
    )  # fmt: skip
    assert [" ".join(words) for words in said] == [
        "--mode target --op new --tid 1 --targetname iqn.x",
        "--mode logicalunit --op new --tid 1 --lun 1 --backing-store /dev/a",
        "--mode logicalunit --op new --tid 1 --lun 2 --backing-store /dev/b",
        "--mode account --op new --user joe --password twelveletters",
        "--mode account --op bind --tid 1 --user joe",
        "--mode account --op new --user target --password twelveothers",
        "--mode account --op bind --tid 1 --user target --outgoing",
        "--mode target --op update --tid 1 --name InitialR2T --value No",
        "--mode target --op bind --tid 1 --initiator-address ALL",
    ]


def test_a_disk_is_a_map_of_memory() -> None:
    assert linear_table(1, 1 << 20) == "0 2048 linear /dev/loop1 0"
    assert disk_device(1) == "/dev/mapper/disk1"
