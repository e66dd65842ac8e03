"""Parameter counts of the networks, as published."""

from __future__ import annotations

# torchvision's totals for the networks that it has; the others were counted from the original programs.
PARAMETERS = {
    "alexnet": 61_100_840,
    "inceptionv3": 23_834_568,
    "inceptionv3-aux": 27_161_264,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "mnist": 3_274_634,
    "inception-bn-28-small": 1_652_826,
    "inception-bn": 11_295_240,
    "resnet50-cifar": 23_547_402,
}
