"""The table of EC2 types is what EC2 says of them, and the machine's own type is asked for the careful way."""

from __future__ import annotations

import gzip
import http.server
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainscale.cluster.aws.instances import INSTANCE_TYPES, find_instance_type, this_instance_type
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

    assert {name for one in INSTANCE_TYPES.values() for name in one.batches} <= set(models.names())


def described() -> dict[str, dict]:
    """EC2's own description of its types, as moto has recorded it."""
    import moto

    with gzip.open(Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz") as file:
        return json.load(file)


def test_devices_and_adapters_are_those_that_ec2_describes() -> None:
    known = described()
    checked = [one for one in INSTANCE_TYPES.values() if one.name in known]
    assert {one.family for one in INSTANCE_TYPES.values()} - {one.family for one in checked} <= {"p2", "g2", "p3"}
    for one in checked:
        facts = known[one.name]
        network = facts["NetworkInfo"]
        gpus = facts.get("GpuInfo", {}).get("Gpus", [{"Count": 0, "Name": ""}])[0]
        assert one.gpus == gpus["Count"], one
        assert gpus["Name"] in one.gpu, one
        assert one.cpus == facts["VCpuInfo"]["DefaultVCpus"], one
        assert one.efa == (network["EfaInfo"]["MaximumEfaInterfaces"] if network["EfaSupported"] else 0), one


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


# ---- the machine's own type


class Metadata(http.server.BaseHTTPRequestHandler):
    """EC2's service, version 2: nothing without a token, and no token without a PUT."""

    def do_PUT(self) -> None:
        self.answer("the-token" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else None)

    def do_GET(self) -> None:
        known = self.headers["X-aws-ec2-metadata-token"] == "the-token"
        self.answer("p2.8xlarge" if known and self.path == "/latest/meta-data/instance-type" else None)

    def answer(self, text: str | None) -> None:
        self.send_response(401 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_type_of_this_machine_comes_from_the_metadata_service() -> None:
    with serving(Metadata) as address:
        assert this_instance_type(address) == "p2.8xlarge"


def test_a_proxy_is_not_asked_for_what_is_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(Metadata) as address:
        assert this_instance_type(address) == "p2.8xlarge"


def test_a_service_that_refuses_is_not_ec2() -> None:
    class Refusing(Metadata):
        def do_PUT(self) -> None:
            self.answer(None)

    with serving(Refusing) as address:
        assert this_instance_type(address) is None


def test_nobody_there_is_not_ec2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert this_instance_type(f"http://127.0.0.1:{port}") is None


def test_somebody_who_never_answers_is_not_ec2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert this_instance_type(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.1) is None


def test_an_answer_that_is_not_http_is_not_ec2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"what?\r\n\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        assert this_instance_type(f"http://127.0.0.1:{server.getsockname()[1]}") is None
        thread.join()
