"""The table of EC2 types agrees with EC2's own description of them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from trainscale.cluster.aws.instances import INSTANCE_TYPES, find_instance_type
from trainscale.errors import InputError


@pytest.mark.parametrize(
    ("name", "gpus", "batches"),
    [
        ("p2.16xlarge", 16, {"alexnet": 512, "inceptionv3": 32}),
        ("p2.8xlarge", 8, {"alexnet": 512, "inceptionv3": 32}),
        ("p2.xlarge", 1, {"alexnet": 512, "inceptionv3": 32}),
        ("g2.2xlarge", 1, {"alexnet": 128, "inceptionv3": 8}),
        ("g2.8xlarge", 4, {"alexnet": 128, "inceptionv3": 8}),
    ],
)
def test_the_originals_types_have_the_originals_defaults(name: str, gpus: int, batches: dict[str, int]) -> None:
    assert find_instance_type(name).gpus == gpus
    assert find_instance_type(name).batches == batches


def test_batches_are_of_models_that_exist() -> None:
    from trainscale.worker import models

    assert {name for instance_type in INSTANCE_TYPES.values() for name in instance_type.batches} <= set(
        models.list_names()
    )


def described() -> dict[str, dict]:
    """EC2's own description of its types, as moto has recorded it."""
    import moto

    with gzip.open(Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz") as file:
        return json.load(file)


def test_devices_and_adapters_are_those_that_ec2_describes() -> None:
    known = described()
    checked = [instance_type for instance_type in INSTANCE_TYPES.values() if instance_type.name in known]
    assert {instance_type.family for instance_type in INSTANCE_TYPES.values()} - {
        instance_type.family for instance_type in checked
    } <= {"p2", "g2", "p3"}
    for instance_type in checked:
        facts = known[instance_type.name]
        network = facts["NetworkInfo"]
        gpus = facts.get("GpuInfo", {}).get("Gpus", [{"Count": 0, "Name": ""}])[0]
        assert instance_type.gpus == gpus["Count"], instance_type
        assert gpus["Name"] in instance_type.gpu, instance_type
        assert instance_type.cpus == facts["VCpuInfo"]["DefaultVCpus"], instance_type
        assert instance_type.efa == (network["EfaInfo"]["MaximumEfaInterfaces"] if network["EfaSupported"] else 0), (
            instance_type
        )


def test_an_unknown_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^--type: unknown instance type 'p5\.48large'; did you mean 'p5\.48xlarge'"):
        find_instance_type("p5.48large", "--type")


def test_the_page_lists_every_family_with_numbers_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "aws.md").read_text()
    table = page.partition("## Instance types")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    listed = {family: row[2] for row in rows[2:] for family in row[0].split(", ")}
    assert set(listed) == {instance_type.family for instance_type in INSTANCE_TYPES.values()}
    checked = 0
    for family, sizes in listed.items():
        for size, gpus, cards in re.findall(r"([\w.]+): (\d+), (\d+)", sizes):
            name = f"{family}.{size}".replace("p3.dn.", "p3dn.")
            if name in INSTANCE_TYPES:
                checked += 1
                instance_type = INSTANCE_TYPES[name]
                assert (instance_type.gpus, instance_type.efa) == (int(gpus), int(cards)), name
    assert checked >= 17
