"""What a container leaves a process, read from a made-up file system."""

import pytest

from autotune.hardware.host import cpu_count, memory_bytes
from autotune.hardware.limits import Limits, read_limits


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V2 = {
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "proc/self/cgroup": "0::/kubepods/pod1/box\n",
}


def test_version_two_takes_the_tightest_bound_up_the_tree(tmp_path):
    write(
        tmp_path,
        V2
        | {
            "sys/fs/cgroup/kubepods/pod1/box/memory.max": "max\n",
            "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods/pod1/memory.max": "8589934592\n",
            "sys/fs/cgroup/kubepods/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/kubepods/memory.max": "17179869184\n",
        },
    )

    assert read_limits(tmp_path) == Limits(cpu_count=2.5, memory_bytes=8 << 30)


def test_version_two_inside_a_container_reads_the_mount_itself(tmp_path):
    write(
        tmp_path,
        {
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1073741824\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
        },
    )

    assert read_limits(tmp_path) == Limits(cpu_count=0.5, memory_bytes=1 << 30)


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_version_one_has_a_tree_per_resource(tmp_path, folder):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n",
            f"sys/fs/cgroup/{folder}/docker/x/cpu.cfs_quota_us": "400000\n",
            f"sys/fs/cgroup/{folder}/docker/x/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "2147483648\n",
        },
    )

    assert read_limits(tmp_path) == Limits(cpu_count=4.0, memory_bytes=2 << 30)


def test_version_one_without_bounds_writes_minus_one_and_a_huge_number(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )

    assert read_limits(tmp_path) == Limits()


def test_a_host_without_control_groups_sets_no_bound(tmp_path):
    assert read_limits(tmp_path) == Limits()


def test_a_garbled_file_sets_no_bound(tmp_path):
    write(tmp_path, V2 | {"sys/fs/cgroup/memory.max": "lots\n"})

    assert read_limits(tmp_path) == Limits()


def test_bounds_only_ever_take_away():
    assert memory_bytes(Limits(memory_bytes=1 << 20)) == 1 << 20
    assert memory_bytes(Limits(memory_bytes=1 << 60)) == memory_bytes(Limits())
    assert cpu_count(Limits(cpu_count=0.5)) == 1
    assert cpu_count(Limits(cpu_count=10_000)) == cpu_count(Limits())
