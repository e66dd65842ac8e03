"""Where torch.compile keeps its programs: graphs, C++ and Triton kernels. It reads these variables when it compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...compiled_programs import choose_compiler_folder

if TYPE_CHECKING:
    from ...job import Job


def environment(framework: str, job: Job | None) -> dict[str, str]:
    folder = choose_compiler_folder(job, "torch", "TORCHINDUCTOR_CACHE_DIR") if job is not None else ""
    # Triton's folder is a part of this one, unless the user has named another.
    others = {} if job is None or job.keeps_compiled else {"TRITON_CACHE_DIR": f"{folder}/triton"}
    return {"TORCHINDUCTOR_CACHE_DIR": folder, **others} if folder else {}
