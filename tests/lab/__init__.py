"""A cluster on one machine: real hosts made of namespaces, for tests of what needs more than one host.

Every host has an address, a name, a disk, a process tree and an sshd of its own; links can be slow, lossy or cut, hosts
can lose their power, and Slurm can run over them. Needs root on Linux; ``needs`` says what is missing. Tests get labs
from the fixtures in ``fixtures``.
"""

from .hosts import CONTROLLER, Lab
from .requirements import needs
from .slurm import Slurm
from .spaces import LabError

__all__ = ["CONTROLLER", "Lab", "LabError", "Slurm", "needs"]
