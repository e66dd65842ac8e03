"""The causes by which a step on several devices takes longer than the work alone, in the order in which they add up."""

from __future__ import annotations

WORK = "work"  # the step of one device that exchanges nothing
CONTENTION = "contention"  # what devices take from each other while they exchange nothing
STRAGGLERS = "stragglers"  # what the slowest rank of a step takes longer than the others
COMMUNICATION = "communication"  # what the exchange of gradients adds, as far as nothing hides it
SERVERS = "servers"  # what parameter servers need for several workers, beyond what they need for one
CROSSING = "crossing hosts"  # what the exchange takes longer because it leaves the first host
INPUT = "input"  # waiting for samples, and preparing and placing them

CAUSES = (WORK, CONTENTION, STRAGGLERS, COMMUNICATION, SERVERS, CROSSING, INPUT)
