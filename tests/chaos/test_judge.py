"""The judgement of the campaign: what holds is not blamed, and every broken promise is noticed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from .campaign import Outcome, judge
from .faults import BY_NAME, FAULTS, LAUNCHERS
from .judge import Hit, Observation, violations
from .report import markdown
from .scenario import make_scenario

HOSTS = {0: "node1", 1: "node2"}


def line(key: str, status: str = "ok", rank: int | None = None, message: str = "") -> bytes:
    row: dict[str, Any] = {"key": key, "status": status}
    if status != "ok":
        row["failure"] = {"kind": status, "message": message, "rank": rank}
    return json.dumps(row).encode() + b"\n"


KILLED = line("b", "crash", 1, "rank 1 was ended by SIGKILL in measure, step 3")
GOOD = Observation(
    hits=[Hit(BY_NAME["rank: kill -9"], 1, "node2", 1, HOSTS)],
    before=line("a"),
    after=line("a") + KILLED + line("c"),
    final=line("a") + KILLED + line("c") + line("b"),
    exit_code=1,
    output="",
    left=[],
    final_exit_code=0,
    final_output="",
    trials=3,
)
INTERRUPTED = replace(
    GOOD,
    hits=[Hit(BY_NAME["controller: SIGINT"], 1, "controller")],
    after=line("a"),
    final=line("a") + line("b") + line("c"),
    exit_code=130,
)


def with_row(row: bytes) -> dict[str, bytes]:
    return {"after": line("a") + row + line("c"), "final": line("a") + row + line("c") + line("b")}


@pytest.mark.parametrize("seen", [GOOD, INTERRUPTED], ids=["a failed row", "an interruption"])
def test_what_holds_is_no_violation(seen: Observation) -> None:
    assert violations(seen) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"after": KILLED + line("c")}, "a finished trial was lost by the fault"),
        ({"final": line("a") + line("b") + line("c")}, "a finished trial was lost when the run went on"),
        ({"final": GOOD.final + line("a")}, "measured twice: a"),
        ({"left": ["node1: python start.py keeper"]}, "left after the end: node1: python"),
        ({"output": "Traceback (most recent call last)"}, "internal error"),
        ({"exit_code": 0}, "exit code 0, expected [1]"),
        ({"exit_code": None}, "the run did not end"),
        ({"final_exit_code": 1}, "the same command does not complete the run"),
        ({"final": GOOD.after}, "leaves the run incomplete"),
        ({"hits": [Hit(BY_NAME["rank: kill -9"], 2, "node2", 1, HOSTS)]}, "failed before any fault"),
        (with_row(line("b", "lost", None, "the keeper on node2 ended")), "the status is lost"),
        (with_row(line("b", "crash", 0, "rank 0 was ended")), "it names another rank"),
        (with_row(line("b", "crash", None, "a rank was ended")), "it names another rank"),
        (with_row(line("b", "crash", 1, "rank 1 on node1 was ended")), "it names node1"),
        ({"after": line("a") + KILLED + KILLED.replace(b'"b"', b'"c"')}, "2 rows failed by it"),
    ],
)
def test_every_broken_promise_is_noticed(change: dict[str, Any], problem: str) -> None:
    problems = [violation.problem for violation in violations(replace(GOOD, **change))]
    assert any(problem in text for text in problems), problems


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("the keeper on node2 ended: killed", ""),
        ("the keeper on node1 ended: killed", "it names node1"),
        ("a keeper ended", "it does not name the host"),
    ],
)
def test_a_killed_keeper_must_name_its_host(message: str, problem: str) -> None:
    hits = [Hit(BY_NAME["keeper: kill -9"], 1, "node2", None, HOSTS)]
    seen = replace(GOOD, hits=hits, **with_row(line("b", "lost", None, message)))
    problems = [violation.problem for violation in violations(seen)]
    assert [problem in text for text in problems] == ([True] if problem else [])


def test_an_interrupted_run_may_not_look_complete_or_failed() -> None:
    for code in (0, 1, 2):
        assert violations(replace(INTERRUPTED, exit_code=code))


def test_each_row_is_attributed_to_the_fault_before_it() -> None:
    hits = [Hit(BY_NAME["keeper: kill -9"], 0, "node1", None, HOSTS), GOOD.hits[0]]
    assert [violation.hit for violation in violations(replace(GOOD, hits=hits))] == []
    wrong = replace(GOOD, hits=hits, **with_row(line("b", "crash", 0, "rank 0 was ended")))
    assert [violation.hit for violation in violations(wrong)] == [1]


def test_a_seed_gives_the_same_scenario_again_and_seeds_reach_every_fault_of_every_launcher() -> None:
    assert make_scenario(7) == make_scenario(7)
    reached = set()
    for seed in range(3000):
        scenario = make_scenario(seed)
        assert 1 <= len(scenario.faults) < scenario.trials
        assert all(not item.fault.is_last for item in scenario.faults[:-1])
        reached |= {(scenario.launcher, item.fault.name) for item in scenario.faults}
    assert reached == {(name, fault.name) for fault in FAULTS for name in LAUNCHERS if name in fault.launchers}


def test_the_report_counts_what_was_tried_and_names_the_seed_of_a_violation() -> None:
    scenario = make_scenario(3, ["ssh"])
    outcomes = [judge(scenario, seen) for seen in (GOOD, replace(GOOD, exit_code=0))]
    text = markdown([*outcomes, Outcome(3, "ssh", error="no lab")], "x")
    assert "`x`: 2 faults in 3 runs; 1 of them broke no promise" in text
    assert "| rank: kill -9 | 2, 1 broke |" in text
    assert "- seed 3, ssh, rank: kill -9: exit code 0, expected [1]" in text
    assert "- seed 3: no lab" in text
