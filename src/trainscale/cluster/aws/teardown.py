"""Taking a cluster down until nothing of it is left: CloudFormation first, then a search for what it overlooked.

CloudFormation deletes what it made, but gives up at the first part that cannot go: an interface that is still held, a
rule that names another group. So it is asked several times, and in between what bears the cluster's tag is removed by
hand. What resists all of it is returned, by name.
"""

from __future__ import annotations

import time

from ...errors import InputError
from . import leftovers
from . import stack as stacks
from .connect import Aws, code_of, message_of, told
from .stack import GONE, Pause, Stack, StackEvent, Watch

_ATTEMPTS = 3
_LOOKS = 20  # at a stack that stands still, until the next attempt
_STUCK_ROUNDS = 18  # of removing by hand without any progress; a NAT gateway takes minutes to go
_ROUND_SECONDS = 10.0


def exists(aws: Aws, name: str) -> bool:
    """Whether there is anything to take down. A stack that is not ours is an error, and never touched."""
    stack = stacks.find(aws, name)
    if stack is not None and stack.status != GONE:
        if not stack.ours:
            raise InputError(f"the stack {name!r} in {aws.region} was not made by trainscale; it is left alone")
        return True
    return bool(leftovers.find(aws, name))


def take_down(aws: Aws, name: str, watch: Watch, pause: Pause = time.sleep) -> list[str]:
    """Removes the cluster of that name, in whatever state it is. Returns what is left, in words."""
    refused: list[str] = []
    stack = stacks.find(aws, name)
    for attempt in range(_ATTEMPTS):
        if stack is None or stack.status == GONE:
            break
        if attempt:
            _sweep(aws, name, watch, pause)
        stack, refused = _delete(aws, stack, watch, pause)
    return [*refused, *_sweep(aws, name, watch, pause)]


def _delete(aws: Aws, stack: Stack, watch: Watch, pause: Pause) -> tuple[Stack | None, list[str]]:
    """One attempt: the stack after it, and which of its parts stayed and why."""
    with told():
        try:
            aws.cloudformation.delete_stack(StackName=stack.id)
        except aws.cloudformation.exceptions.ClientError as error:
            # Held by something, or in the middle of something else: either may be over at the next attempt.
            if code_of(error) not in ("DependencyViolation", "OperationInProgressException", "ValidationError"):
                raise
            watch(StackEvent(stack.name, "DELETE_FAILED", message_of(error)))
    refused: dict[str, str] = {}
    deleting = False
    still = 0

    def note(event: StackEvent) -> None:
        """The events are those of the stack's whole life: the last deletion that began is the one that counts."""
        nonlocal deleting
        if event.resource == stack.name and event.status == "DELETE_IN_PROGRESS":
            deleting = True
            refused.clear()
        elif deleting and event.resource != stack.name:
            watch(event)
            if event.status == "DELETE_FAILED":
                refused[event.resource] = event.reason

    def over(now: Stack) -> bool:
        nonlocal still
        still = 0 if now.moving else still + 1
        return now.status == GONE or (now.status == "DELETE_FAILED" and deleting) or still > _LOOKS

    after = stacks.follow(aws, stack.id, note, over, pause)
    if after is None or after.status == GONE:
        return after, []
    return after, [f"{resource}: {reason}" for resource, reason in refused.items()]


def _sweep(aws: Aws, name: str, watch: Watch, pause: Pause) -> list[str]:
    """Removes what is left by hand, round by round, as long as there is progress. Returns what does not go, and why."""
    left = leftovers.find(aws, name)
    best, stuck = len(left) + 1, 0
    reasons: dict[leftovers.Leftover, str] = {}
    while left and stuck < _STUCK_ROUNDS:
        stuck = stuck + 1 if len(left) >= best else 0
        best = min(best, len(left))
        if stuck:
            pause(_ROUND_SECONDS)
        for one in left:
            watch(StackEvent(str(one), "DELETE_IN_PROGRESS", ""))
            reasons[one] = leftovers.remove(aws, one)
        before, left = left, leftovers.find(aws, name)
        for one in before:
            if one not in left:
                watch(StackEvent(str(one), "DELETE_COMPLETE", ""))
    return [f"{one}{f': {reasons[one]}' if reasons.get(one) else ''}" for one in left]
