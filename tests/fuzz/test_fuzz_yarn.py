"""Hostile answers of a ResourceManager, and hostile output of Hadoop's programs."""

from __future__ import annotations

import json
from pathlib import Path

from hostile import TEXT, VALUES, damaged, mutations, refusal, scratch_folder
from hypothesis import given
from hypothesis import strategies as st

from trainscale.cluster.yarn import ResourceManager, YarnClient, list_manager_urls, read_configuration
from trainscale.launch.launchers.yarn_application import find_caps, find_error, find_retries, summarise_diagnostics

FOLDER = scratch_folder("yarn")
EXCHANGES = json.loads((Path(__file__).parents[1] / "support" / "yarn_rest.json").read_text())
BODIES = [json.loads(exchange["body"]) for exchange in EXCHANGES]
SITE = (
    b"<configuration><property><name>yarn.resourcemanager.hostname</name><value>${a}</value></property>"
    b"<property><name>a</name><value>rm</value></property></configuration>"
)


class Recorded(ResourceManager):
    def __init__(self, answer: object) -> None:
        super().__init__(YarnClient("/bin/false", "shell.jar"))
        self.answer = answer if isinstance(answer, dict) else None

    def _get(self, path: str) -> dict[str, object] | None:
        return self.answer

    def _run(self, *arguments: str) -> str:
        return ""


@given(st.one_of(VALUES, *map(mutations, BODIES)))
def test_yarn_answers(answer: object) -> None:
    manager = Recorded(answer)
    application = manager.read_application("application_1_0001")
    if application is not None:
        summarise_diagnostics(application.diagnostics)
    manager.find_application("trainscale-1")
    manager.count_pending_containers()
    manager.describe_free_resources()


@given(damaged(SITE))
def test_yarn_site_files(content: bytes) -> None:
    path = FOLDER / "yarn-site.xml"
    path.write_bytes(content)
    message = refusal(lambda: list_manager_urls(read_configuration([FOLDER])))
    assert not message or str(path) in message


LINES = st.one_of(
    TEXT,
    st.builds("INFO Max mem capability of resources in this cluster {}".format, TEXT),
    st.builds("Retrying connect to server: {}. Already tried {} time(s)".format, TEXT, TEXT),
    st.builds("Caused by: {}".format, TEXT),
)


@given(st.lists(LINES, max_size=5).map("\n".join), TEXT)
def test_hadoop_output(output: str, memory: str) -> None:
    find_error(output)
    find_retries(output)
    find_caps(output, ["-container_memory", memory])
    assert len(summarise_diagnostics(output)) < 1000
