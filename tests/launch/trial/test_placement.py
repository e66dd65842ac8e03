"""Who goes where."""

import socket
from pathlib import Path
from typing import Any

from trainscale.launch.trial.trial import (
    TrialSettings,
    build_tasks,
    count_ports,
    find_loopback_interface,
    place_trial,
)
from trainscale.spec.config import Config, Trial
from trainscale.spec.devices import LOCALHOST, LOOPBACK, AvailableDevices, Host
from trainscale.worker.job import SCHEDULER, SERVER, WORKER, Device, Job, Measure, Task

CPUS = tuple(Device("cpu", slot, (2 * slot, 2 * slot + 1)) for slot in range(4))
GPUS = tuple(Device("cuda", index) for index in range(4))


def placed(devices: int, here: tuple[Device, ...] = CPUS, sites: tuple[Host, ...] = (), **settings: Any) -> list[Task]:
    config = Config(**{"framework": "torch", "model": "mnist", "batch": 8, "strategy": "allreduce",
                       "image_size": 28, "classes": 10, "device": here[0].kind, **settings})  # fmt: skip
    trial = Trial(config, devices, 0)
    kind = here[0].kind
    slots = place_trial(trial, AvailableDevices(kind, sites or (Host(LOOPBACK, LOCALHOST, devices=here),), 1, "hosts"))
    return build_tasks(
        trial,
        slots,
        {host: range(1111, 1111 + count) for host, count in count_ports(slots).items()},
        TrialSettings(Measure(3, 5), seed=7, pythons={"torch": "/usr/bin/python3", "mxnet": "/opt/mxnet/python3"}),
    )


def job_of(task: Task) -> Job:
    return Job.from_json(task.job)


def test_workers_take_devices_in_order_and_know_their_place() -> None:
    tasks = placed(3)
    assert {(task.host, task.command[0]) for task in tasks} == {("localhost", "/usr/bin/python3")}
    jobs = [job_of(task) for task in tasks]
    assert [job.rank for job in jobs] == [0, 1, 2]
    assert [job.device for job in jobs] == list(CPUS[:3])
    assert {(job.role, job.workers, job.servers, job.world) for job in jobs} == {(WORKER, 3, 0, 3)}
    assert {job.addresses for job in jobs} == {("127.0.0.1",) * 3}
    assert {(job.port, job.rendezvous_port, job.seed) for job in jobs} == {(1111, 1114, 7)}
    assert {job.ports for job in jobs} == {(1111, 1112, 1113)}
    assert {job.measure for job in jobs} == {Measure(3, 5)}
    # Networks are found in the folder where the command was typed; weights are saved only on request.
    assert {(job.python_path, job.save_weights) for job in jobs} == {((str(Path.cwd()),), None)}


def test_jobs_carry_the_config_and_the_batch_of_a_device() -> None:
    weak, strong = job_of(placed(4)[0]), job_of(placed(4, scaling="strong")[0])
    assert (weak.batch, strong.batch) == (8, 2)
    assert weak.config.model == "mnist"


def test_every_process_has_the_allocator_variables_of_its_config_and_the_host_may_replace_them() -> None:
    tuned, system = (placed(2, strategy="ps", servers=1, allocator=name) for name in ("tuned", "system"))
    assert [sorted(task.defaults) for task in tuned] == [
        ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_"]
    ] * 3
    assert [task.defaults for task in system] == [{}] * 3
    assert all(task.environment == {} for task in (*tuned, *system))


def test_the_keeper_samples_the_gpus_of_workers_that_have_a_window() -> None:
    assert [task.gpu for task in placed(2, GPUS, strategy="ps", servers=1)] == [0, 1, None]
    assert [task.gpu for task in placed(2, GPUS, epochs=3)] == [None, None]
    assert [task.gpu for task in placed(2)] == [None, None]


def test_servers_beside_share_the_workers_cores_in_turn_and_apart_take_the_devices_after_them() -> None:
    jobs = [job_of(task) for task in placed(2, strategy="ps", servers=3)]
    assert [job.role for job in jobs] == [WORKER, WORKER, SERVER, SERVER, SERVER]
    assert [job.device for job in jobs] == [CPUS[0], CPUS[1], CPUS[0], CPUS[1], CPUS[0]]
    assert [job.rank for job in jobs] == [0, 1, 2, 3, 4]
    assert len(jobs[0].addresses) == 5
    jobs = [job_of(task) for task in placed(2, strategy="ps", servers=2, server_placement="apart")]
    assert [job.device for job in jobs] == list(CPUS)
    for placement in ("beside", "apart"):  # on a GPU host they may use any core, and no GPU
        jobs = [job_of(task) for task in placed(4, GPUS, strategy="ps", servers=2, server_placement=placement)]
        assert [job.device for job in jobs] == [*GPUS, Device("cpu", 0, ()), Device("cpu", 1, ())]


def test_a_scheduler_is_the_last_process_beside_the_first_worker_where_one_is_needed() -> None:
    jobs = [job_of(task) for task in placed(2, framework="mxnet", strategy="ps", servers=2)]
    assert [job.role for job in jobs] == [WORKER, WORKER, SERVER, SERVER, SCHEDULER]
    assert jobs[-1].device == CPUS[0]
    assert {(job.world, len(job.addresses), len(job.ports)) for job in jobs} == {(4, 5, 5)}
    assert [job_of(task).role for task in placed(2, framework="mxnet", strategy="independent")] == [WORKER] * 2


NODES = tuple(
    Host(
        f"10.0.0.{n}",
        f"node{n}",
        interface=f"eth{n}",
        devices=CPUS[:2],
        pythons={"mxnet": f"/node{n}/python"} if n == 2 else {},
    )
    for n in (1, 2, 3)
)


def test_on_several_hosts_every_job_knows_all_addresses_and_its_own_interface() -> None:
    processes = placed(3, sites=NODES)
    assert [process.host for process in processes] == ["node1", "node1", "node2"]
    jobs = [job_of(task) for task in processes]
    assert {job.addresses for job in jobs} == {("10.0.0.1", "10.0.0.1", "10.0.0.2")}
    assert [job.interface for job in jobs] == ["eth1", "eth1", "eth2"]
    assert {job.ports for job in jobs} == {(1111, 1112, 1111)}
    assert {job.rendezvous_port for job in jobs} == {1113}
    # What fits on one host stays inside it.
    jobs = [job_of(task) for task in placed(2, sites=NODES)]
    assert {job.addresses for job in jobs} == {("127.0.0.1", "127.0.0.1")}
    assert {job.interface for job in jobs} == {find_loopback_interface()}
    assert find_loopback_interface() in {name for _, name in socket.if_nameindex()}


def test_a_host_with_a_python_of_its_own_for_a_framework_uses_it() -> None:
    processes = placed(4, sites=NODES, framework="mxnet", strategy="ps", servers=1)
    assert [task.command[0] for task in processes] == [
        "/opt/mxnet/python3", "/opt/mxnet/python3", "/node2/python", "/node2/python",
        "/opt/mxnet/python3", "/opt/mxnet/python3",
    ]  # fmt: skip
