"""How the error of a rank is classified, and which of its lines is reported, in the words of every framework."""

import pytest

from trainscale.worker.events import find_explaining_line
from trainscale.worker.training.rank import classify


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9081766976 bytes."),
        RuntimeError(
            "OOM when allocating tensor with shape[64,3,224,224] and type float on GPU:0 by allocator GPU_0_bfc"
        ),
        RuntimeError("Failed to allocate CPU Memory"),
        RuntimeError("cudaMalloc retry failed: out of memory"),
        RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
        type("ResourceExhaustedError", (Exception,), {})("{{function_node __wrapped__Fill}} of TensorFlow"),
    ],
)
def test_want_of_memory_is_known_by_its_words(error: BaseException) -> None:
    assert classify(error) == "oom"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        RuntimeError("could not create a primitive"),
        RuntimeError("Compute received an exception:Status:1, message: could not create a memory object."),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_what_fails_for_want_of_memory_without_saying_so_counts_only_under_a_limit(error: BaseException) -> None:
    assert classify(ValueError("expected 3 channels"), limited=True) == "crash"
    assert classify(OSError(98, "Address already in use"), limited=True) == "port"
    assert classify(error, limited=True) == "oom"
    assert classify(error) == "crash"


# ---- the line that explains an error: TensorFlow's begin with headings, MXNet's with a traceback

MESSAGE = "ValueError: the network of rank 1 does not like this image"


@pytest.mark.parametrize(
    "heading",
    [
        "",
        "From /job:worker/replica:0/task:1:\n",
        "INVALID_ARGUMENT: From /job:worker/replica:0/task:1:\n",
        "Graph execution error:\n\nDetected at node 'x' defined at (most recent call last):\n  File a.py\n",
        "2 root error(s) found.\n  (0) INVALID_ARGUMENT: first\n",
    ],
)
def test_headings_are_passed_over(heading: str) -> None:
    assert find_explaining_line(f"{heading}{MESSAGE}\nTraceback (most recent call last):\n") == MESSAGE


def test_a_message_that_begins_with_a_traceback_is_explained_by_its_last_line() -> None:
    assert find_explaining_line(f"Traceback (most recent call last):\n  File a.cc\nStack:\n{MESSAGE}") == MESSAGE


def test_an_error_of_headings_alone_gives_its_first() -> None:
    assert find_explaining_line("From /job:worker/task:1:\n\n") == "From /job:worker/task:1:"
    assert find_explaining_line("") == ""
