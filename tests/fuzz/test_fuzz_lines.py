"""Hostile lines: events, logs, answers of a ResourceManager, and output of Hadoop's programs."""

import json
from pathlib import Path

from hostile import NUMBERS, TEXT, VALUES, damaged, mutations, refusal, scratch_folder
from hypothesis import given
from hypothesis import strategies as st

from trainscale.analyse.logs import REDUCERS, read_log
from trainscale.cli.parse_log import FORMATS, render_epoch_table, render_step_table
from trainscale.cluster.yarn import YarnClient, list_manager_urls, read_configuration
from trainscale.launch.connection import decode_line
from trainscale.launch.launchers.yarn import find_error, summarise_diagnostics
from trainscale.worker.events import EVENTS, LIMIT, MARK
from trainscale.worker.keeper.keeper import extract_event

KINDS = st.sampled_from([*sorted(EVENTS), "unknown", ""])
FIELDS = sorted({name for event in EVENTS.values() for name in event.__dataclass_fields__})
EVENT_VALUES = st.builds(
    lambda kind, values, rank: {**values, "kind": kind, **({} if rank is None else {"rank": rank})},
    KINDS,
    st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.just("seq"), TEXT), VALUES, max_size=4),
    st.one_of(st.none(), st.integers(0, 3), VALUES),
)
NESTED = st.integers(1, 4000).map(lambda depth: depth * "[")
EVENT_LINES = st.one_of(
    EVENT_VALUES.map(lambda values: MARK + json.dumps(values)),
    st.one_of(st.text(max_size=30), NESTED, NESTED.map(lambda text: '{"kind":"steps","first":' + text)).map(
        lambda text: MARK + text
    ),
    st.text(max_size=40),
)


@given(EVENT_LINES)
def test_event_lines(line: str) -> None:
    """What a rank prints goes through the keeper, which reads bytes, to the controller."""
    line = line[:LIMIT].encode(errors="replace").decode()
    decode_line(line, "node1")
    relayed = extract_event(line, 3)
    if relayed is not None:
        decode_line(relayed.decode().removesuffix("\n"), "node1")


COUNTS = st.one_of(st.integers(0, 12).map(str), st.sampled_from([300 * "1", 5000 * "9"]))
FLOATS = st.one_of(NUMBERS.filter(lambda number: isinstance(number, float)).map(str), COUNTS, TEXT)
LOG_LINES = st.one_of(
    st.builds("INFO:root:Epoch[{}] Train-accuracy={}".format, COUNTS, FLOATS),
    st.builds("Epoch[{}] Validation-{}={}".format, COUNTS, TEXT, FLOATS),
    st.builds("Epoch[{}] Time cost={}".format, COUNTS, FLOATS),
    st.builds("Node[{}] Epoch[{}] Batch [{}] Speed: {} samples/sec".format, COUNTS, COUNTS, COUNTS, FLOATS),
    st.builds("{}\timages/sec: {} +/- {} (jitter = {})\t{}".format, COUNTS, FLOATS, FLOATS, FLOATS, FLOATS),
    st.builds("total images/sec: {}".format, FLOATS),
    st.builds("Model: {}\n  {} global".format, TEXT, COUNTS),
    st.builds("Step\tImg/sec\t{}".format, TEXT),
    st.builds('{{"schema":{},"key":{}}}'.format, COUNTS, TEXT),
    st.text(max_size=30),
)


@given(st.lists(LOG_LINES, max_size=8).map("\n".join), st.sampled_from(REDUCERS), st.booleans())
def test_logs(text: str, reduce: str, one_run: bool) -> None:
    def read() -> None:
        for section in read_log(text.splitlines(keepends=True), "some.log", reduce, one_run):
            for form in FORMATS:
                render_epoch_table(section.epochs, form) if section.epochs else render_step_table(section.steps, form)

    message = refusal(read)
    assert not message or message.startswith("some.log")


FOLDER = scratch_folder("yarn")
EXCHANGES = json.loads((Path(__file__).parents[1] / "support" / "yarn_rest.json").read_text())
BODIES = [json.loads(exchange["body"]) for exchange in EXCHANGES]
SITE = (
    b"<configuration><property><name>yarn.resourcemanager.hostname</name><value>${a}</value></property>"
    b"<property><name>a</name><value>rm</value></property></configuration>"
)


class Recorded(YarnClient):
    def __init__(self, answer: object) -> None:
        super().__init__("/bin/false", "shell.jar")
        self.answer = answer if isinstance(answer, dict) else None

    def _request(self, path: str, key: str) -> dict[str, object] | None:
        found = None if self.answer is None else self.answer.get(key)
        return found if isinstance(found, dict) or self.answer is None else {}

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
    st.builds("Caused by: {}".format, TEXT),
)


@given(st.lists(LINES, max_size=5).map("\n".join))
def test_hadoop_output(output: str) -> None:
    find_error(output)
    assert len(summarise_diagnostics(output)) < 1000
