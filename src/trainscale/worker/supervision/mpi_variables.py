"""The environment variables by which a process of an mpirun knows that it is one of its ranks."""

from __future__ import annotations

MPI_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "MPIR_", "HYDRA_", "HYDI_")
