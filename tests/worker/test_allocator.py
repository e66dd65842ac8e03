"""Which variables of an environment concern the C allocator."""

from __future__ import annotations

from trainscale.worker.allocator import ALLOCATORS, SYSTEM, TUNED, select_allocator_variables


def test_the_variables_of_the_c_allocator_are_named_and_no_others() -> None:
    own = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "LD_PRELOAD": "libjemalloc.so.2", "MALLOC_ARENA_MAX": "1"}
    others = {"PATH": "/bin", "PYTHONMALLOC": "malloc", "LD_LIBRARY_PATH": "/lib"}
    assert select_allocator_variables({**others, **own}) == own
    assert list(select_allocator_variables({**own, **others})) == sorted(own)


def test_every_variable_of_a_setting_is_reported_by_the_process_that_has_it() -> None:
    assert select_allocator_variables(ALLOCATORS[TUNED]) == ALLOCATORS[TUNED]
    assert len(ALLOCATORS[TUNED]) == 3
    assert ALLOCATORS[SYSTEM] == {}
