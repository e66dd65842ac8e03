"""What many tests need: networks made for tests, and trials run in real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.fixtures import lab, make_lab, slurm  # noqa: F401  (hosts of their own, for tests of what needs several)

# Helpers are plain modules in tests/support; the worker finds the networks there too, by its own module path.
sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(autouse=True, scope="module")
def _tables_as_they_were() -> Iterator[None]:
    """What a test adds to the tables of frameworks, models and launchers is gone after its file."""
    from trainscale.launch.launchers.catalog import LAUNCHERS
    from trainscale.worker.frameworks.catalog import FRAMEWORKS
    from trainscale.worker.models import catalog

    tables: list[dict] = [LAUNCHERS, FRAMEWORKS, catalog._BY_NAME]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    catalog._folded.cache_clear()


# Minutes that `make test` does not have: of each of these, something alike is in it. `make test-all` runs them.
_LONG = (
    "test_run.py::test_an_experiment_file_with_a_users_own_network_and_flags_that_win",
    "test_run.py::test_a_budget_measures_every_point_and_takes_as_many_steps_as_fit",
    "test_run.py::test_a_point_that_fails_is_a_row_and_the_run_goes_on",
    "test_batch_auto.py::test_the_largest_batch_is_searched_shown_measured_and_not_searched_again",
    "test_interruptions.py::test_kill_9_of_a_worker_is_a_row_with_its_reason_and_the_run_goes_on",
    "test_missing_frameworks.py::test_the_others_run_and_the_reason_is_told_once_and_kept_as_a_row[dies]",
    "test_missing_frameworks.py::test_the_others_run_and_the_reason_is_told_once_and_kept_as_a_row[broken]",
    "test_cluster.py::test_down_touches_no_other_cluster_and_no_other_stack",
    "test_check_hosts.py::test_a_framework_that_is_named_is_imported_and_the_worker_is_not_copied_again",
    "test_mnist_example.py::test_workers_out_of_step_share_the_updates",
    "test_frameworks_over_hosts.py::test_a_port_that_is_taken_on_the_other_host_is_chosen_anew[once]",
    "test_frameworks_over_hosts.py::test_a_framework_trains_over_two_hosts_on_the_network_it_is_told[keras-torch",
    "test_frameworks_over_hosts.py::test_a_framework_trains_over_two_hosts_on_the_network_it_is_told[keras-tensorflow",
    "test_inside_mpi.py::test_two_processes_on_two_hosts_train_together[openmpi]",
    "test_mpi_hosts.py::test_two_hosts_train_together_each_in_its_own_way[mpich]",
    "test_yarn.py::test_a_container_that_dies_in_a_trial_costs_that_point_only",
    "test_conduct.py::test_ports_that_are_always_taken_are_a_row_that_says_so",
    "test_parity.py::test_what_was_computed_once_is_remembered_until_a_version_changes",
    "test_parity.py::test_remembered_numbers_that_are_damaged_are_not_believed",
    "test_parity.py::test_a_mistake_is_found_and_named[wider",
    "test_parity.py::test_a_mistake_is_found_and_named[other_init",
    "test_parity.py::test_a_mistake_is_found_and_named[transposed",
    "test_source.py::test_a_trial_trains_on_photographs[jax]",
    "test_jax_strategies.py::test_bfloat16_batch_norm_and_dropout_train_alike_on_all_ranks",
    "test_keras_networks.py::test_a_network_of_ones_own_trains_alike_on_all_ranks[keras-torch]",
    "test_keras_networks.py::test_the_probe_counts_a_network_and_says_what_is_wrong_with_another[keras-torch]",
    "test_keras_strategies.py::test_independent_workers_exchange_nothing_and_bfloat16_trains",
    "test_keras_strategies.py::test_one_process_together_in_another_layout_is_a_lone_device",
    "test_keras_jax_learning.py::test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy",
    "test_keras_tensorflow_learning.py::test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy",
    "test_keras_torch_learning.py::test_predictions_do_not_depend_on_the_other_images_of_the_batch",
    "test_keras_tensorflow_learning.py::test_predictions_do_not_depend_on_the_other_images_of_the_batch",
    "test_mxnet_trouble.py::test_a_scheduler_whose_port_is_taken_gets_another",
    "test_tensorflow_strategies.py::test_one_process_is_the_same_training_by_whatever_engine_and_layout",
    "test_tensorflow_strategies.py::test_asynchronous_servers_lower_the_loss_and_share_the_weights_by_size",
    "test_tensorflow_strategies.py::test_independent_workers_exchange_nothing",
    "test_torch_strategies.py::test_a_network_with_an_auxiliary_head_trains",
    "test_torch_strategies.py::test_independent_workers_exchange_nothing",
    "test_failures.py::test_a_rank_that_lives_but_does_not_move_hangs_and_is_named",
    "test_keras_strategies.py::test_every_kind_of_layer_computes_what_pytorch_computes[keras-torch]",
    "test_keras_tensorflow_learning.py::test_training_is_that_of_one_device_in_pytorch[local-1",
    "test_env.py::test_one_that_fails_does_not_stop_the_next",
    "test_conduct.py::test_a_port_that_somebody_took_is_chosen_anew[the framework's]",
    "test_frameworks_over_hosts.py::test_a_framework_trains_over_two_hosts_on_the_network_it_is_told[torch-allreduce]",
    "test_frameworks_over_hosts.py::test_a_framework_trains_over_two_hosts_on_the_network_it_is_told[mxnet-ps:2]",
    "test_launch.py::test_workers_of_a_framework_find_each_other[tensorflow]",
    "test_frameworks_over_hosts.py::test_workers_that_exchange_nothing_still_meet[keras-",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.rpartition("/")[2].startswith(_LONG):
            item.add_marker(pytest.mark.slow)
