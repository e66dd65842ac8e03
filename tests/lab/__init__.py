"""A cluster on one machine: hosts made of Linux namespaces, for tests that need more than one host.

Every host has its own address, name, disk, process tree and sshd. Links can be slow, lossy or cut, hosts can lose their
power, and Slurm can run on them. A lab needs root on Linux; ``missing_requirement`` says what is missing. Tests get
labs from the fixtures in tests/conftest.py.
"""

from .hosts import CONTROLLER, Lab
from .namespaces import LabError, missing_requirement
from .slurm import Slurm

__all__ = ["CONTROLLER", "Lab", "LabError", "Slurm", "missing_requirement"]
