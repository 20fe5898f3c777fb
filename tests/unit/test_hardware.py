"""Devices as a driver describes them, replayed from a recorded reading."""

import json
from pathlib import Path

import pytest

from autotune.hardware import machine_of
from autotune.hardware.conditions import read_conditions, watching
from autotune.hardware.devices import Inventory, NoDevices, read_devices
from autotune.hardware.nvml import At, Refused, question
from autotune.hardware.recording import Recorder, Recording


READING = json.loads(
    (Path(__file__).parents[1] / "data/nvml/two_h200.json").read_text()
)
FIRST = "GPU-11111111-aaaa-4000-8000-000000000000"
SECOND = "GPU-22222222-bbbb-4000-8000-000000000001"


def recording(**changes):
    """The reading of two H200s, with some answers replaced."""
    answers = dict(READING)
    for asked, answer in changes.items():
        answers[asked.replace("__", " #", 1).replace("__", " ")] = answer
    return Recording(answers)


def value(answer):
    return {"value": answer}


def refused(code, text="refused"):
    return {"refused": code, "text": text}


def read(nvml=None, environment=None, process_name=lambda _pid: None):
    return read_devices(
        nvml or recording(),
        environment=environment or {},
        process_name=process_name,
    )


def with_parts(count):
    """The first device cut into MIG instances; the second left whole."""
    answers = dict(READING)
    answers["nvmlDeviceGetMigMode #0"] = value([1, 1])
    answers["nvmlDeviceGetMaxMigDeviceCount #0"] = value(7)
    for part in range(count):
        answers |= {
            f"nvmlDeviceGetUUID #0.{part}": value(f"MIG-{part}000"),
            f"nvmlDeviceGetName #0.{part}": value("NVIDIA H200 MIG 3g.71gb"),
            f"nvmlDeviceGetMemoryInfo #0.{part} 33554472": value(
                {"total": 70 << 30, "free": 69 << 30, "used": 0, "reserved": 1 << 30}
            ),
        }
    return Recording(answers)


def test_two_devices_are_read_with_memory_capability_and_driver():
    found = read()

    assert isinstance(found, Inventory)
    assert (found.driver, found.cuda) == ("580.159.04", "13.0")
    assert [d.name for d in found.devices] == ["NVIDIA H200"] * 2
    assert [d.uuid for d in found.devices] == [FIRST, SECOND]
    first = found.devices[0]
    assert first.capability == (9, 0)
    assert not first.mig
    assert first.total_bytes == 150754820096
    assert first.used_bytes + first.free_bytes + first.reserved_bytes == (
        first.total_bytes
    )


def test_whoever_holds_memory_is_named():
    found = read(process_name={564: "python3"}.get)

    (holder,) = found.devices[0].holders
    assert (holder.pid, holder.name, holder.used_bytes) == (564, "python3", 3900702720)
    assert found.devices[1].holders == ()


def test_a_process_of_another_container_has_no_name_and_perhaps_no_amount():
    nvml = recording(
        nvmlDeviceGetComputeRunningProcesses__0=value(
            [{"pid": 7, "usedGpuMemory": None}, {"pid": 8, "usedGpuMemory": 5}]
        )
    )

    holders = read(nvml).devices[0].holders

    assert [(h.pid, h.name, h.used_bytes) for h in holders] == [
        (8, None, 5),
        (7, None, None),
    ]


def test_devices_joined_by_nvlink_say_so():
    (link,) = read().links

    assert (link.left, link.right) == (0, 1)
    assert link.nvlink
    assert link.nvlink_count == 18
    assert link.pcie == "host_bridge"
    assert link.peer_access


def test_devices_without_nvlink_meet_on_the_bus():
    answers = dict(READING) | {
        "nvmlDeviceGetP2PStatus #0 #1 2": value(5),
        "nvmlDeviceGetTopologyCommonAncestor #0 #1": value(50),
    }

    (link,) = read(Recording(answers)).links

    assert link.nvlink is False
    assert link.nvlink_count == 0
    assert link.pcie == "sockets"


def test_an_unreadable_topology_is_unknown_not_absent():
    answers = {k: v for k, v in READING.items() if "P2P" not in k and "Topol" not in k}

    (link,) = read(Recording(answers)).links

    assert (link.nvlink, link.pcie, link.peer_access) == (None, None, None)


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        ("1", [SECOND]),
        ("1,0", [SECOND, FIRST]),
        (SECOND, [SECOND]),
        ("GPU-222", [SECOND]),
        ("1,7,0", [SECOND]),
        (" 0 , 1 ", [FIRST, SECOND]),
    ],
)
def test_visible_devices_are_honoured_in_their_order(setting, uuids):
    found = read(environment={"CUDA_VISIBLE_DEVICES": setting})

    assert [d.uuid for d in found.devices] == uuids


@pytest.mark.parametrize(
    "setting", ["", "-1", "7", "0,0", "GPU-", "GPU-3", "NoDevFiles"]
)
def test_a_setting_that_shows_nothing_is_quoted_in_one_line(setting):
    found = read(environment={"CUDA_VISIBLE_DEVICES": setting})

    assert isinstance(found, NoDevices)
    assert found.why == "hidden"
    assert f"CUDA_VISIBLE_DEVICES={setting!r}" in found.line
    assert "\n" not in found.line


@pytest.mark.parametrize(
    ("code", "why", "words"),
    [
        (12, "no_driver", "libnvidia-ml.so.1 is not found"),
        (9, "no_driver", "not loaded"),
        (4, "no_permission", "/dev/nvidia"),
        (18, "broken_driver", "different versions"),
        (999, "broken_driver", "Unknown Error"),
    ],
)
def test_a_driver_that_does_not_open_gives_one_clear_line(code, why, words):
    found = read(Recording({"nvmlInit": refused(code, "Unknown Error")}))

    assert isinstance(found, NoDevices)
    assert found.why == why
    assert words in found.line
    assert "\n" not in found.line


def test_a_driver_without_devices_says_so():
    assert read(recording(nvmlDeviceGetCount=value(0))).why == "no_device"


def test_a_lost_device_is_named_with_its_number():
    answers = dict(READING) | {
        "nvmlDeviceGetMemoryInfo #1 33554472": refused(15, "GPU is lost"),
        "nvmlDeviceGetMemoryInfo #1": refused(15, "GPU is lost"),
    }

    found = read(Recording(answers))

    assert found.why == "broken_driver"
    assert "device 1 has fallen off the bus" in found.line


def test_an_old_driver_without_the_reserved_share_leaves_it_unknown():
    answers = dict(READING) | {
        "nvmlDeviceGetMemoryInfo #0 33554472": refused(13),
        "nvmlDeviceGetMemoryInfo #0": value({"total": 10, "free": 6, "used": 4}),
    }

    first = read(Recording(answers)).devices[0]

    assert (first.total_bytes, first.free_bytes, first.used_bytes) == (10, 6, 4)
    assert first.reserved_bytes is None


def test_a_cut_device_stands_for_its_first_instance_alone():
    """CUDA gives a process one MIG instance and no other device beside it."""
    found = read(with_parts(2))

    (device,) = found.devices
    assert (device.index, device.part, device.mig) == (0, 0, True)
    assert device.uuid == "MIG-0000"
    assert device.total_bytes == 70 << 30
    assert found.links == ()


def test_an_instance_can_be_chosen_by_its_uuid():
    found = read(with_parts(2), environment={"CUDA_VISIBLE_DEVICES": "MIG-1000"})

    assert [d.uuid for d in found.devices] == ["MIG-1000"]


def test_numbers_count_whole_devices_beside_a_cut_one():
    found = read(with_parts(2), environment={"CUDA_VISIBLE_DEVICES": "1"})

    assert [d.uuid for d in found.devices] == [SECOND]


def test_a_cut_device_without_instances_cannot_be_used():
    found = read(with_parts(0), environment={"CUDA_VISIBLE_DEVICES": "0"})

    assert found.why == "no_device"
    assert "nvidia-smi mig" in found.line


def test_devices_of_several_kinds_are_noted_unless_the_order_is_set():
    nvml = recording(nvmlDeviceGetName__1=value("NVIDIA L4"))

    assert "CUDA_DEVICE_ORDER" in read(nvml).note
    assert read(nvml, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).note == ""
    assert read().note == ""


def test_the_library_is_closed_again():
    recorder = Recorder(recording())

    read(recorder)

    assert "nvmlShutdown" in recorder.answers


def test_a_recorder_writes_what_a_recording_replays():
    recorder = Recorder(recording())

    found = read(recorder)

    assert read(Recording(json.loads(json.dumps(recorder.answers)))) == found


def test_a_question_never_asked_is_refused_by_name():
    answer = Recording({}).ask("nvmlDeviceGetName", At(0))

    assert isinstance(answer, Refused)
    assert question("nvmlDeviceGetName", (At(0),)) in answer.text


def test_conditions_of_a_busy_and_an_idle_device():
    with watching(recording()) as opened:
        busy, idle = (read_conditions(recording(), i) for i in (0, 1))

    assert opened
    assert busy.sm_clock_mhz == 1980
    assert busy.power_w == pytest.approx(88.08)
    assert busy.power_limit_w == 700
    assert busy.temperature_c == 34
    assert busy.busy_percent == 3
    assert busy.throttle == ()
    assert busy.slowed is False
    assert idle.throttle == ("idle",)
    assert idle.slowed is False


def test_heat_and_power_count_as_slowed():
    nvml = recording(nvmlDeviceGetCurrentClocksEventReasons__0=value(0x24))

    conditions = read_conditions(nvml, 0)

    assert conditions.throttle == ("power_cap", "thermal")
    assert conditions.slowed


def test_an_older_driver_is_asked_by_the_older_name():
    nvml = recording(
        nvmlDeviceGetCurrentClocksEventReasons__0=refused(13),
        nvmlDeviceGetCurrentClocksThrottleReasons__0=value(0x40),
    )

    assert read_conditions(nvml, 0).throttle == ("hardware_thermal",)


def test_what_cannot_be_read_is_none_and_never_zero():
    conditions = read_conditions(Recording({}), 0)

    assert conditions.sm_clock_mhz is None
    assert conditions.power_w is None
    assert conditions.throttle is None
    assert conditions.slowed is None


def test_watching_without_a_driver_says_that_nothing_opened():
    with watching(Recording({"nvmlInit": refused(12)})) as opened:
        assert not opened


def test_a_machine_counts_its_devices_and_keeps_the_given_versions():
    machine = machine_of(read(), versions={"vllm": "0.21.0"})

    assert machine.device == "NVIDIA H200"
    assert machine.device_count == 2
    assert machine.device_memory_bytes == 150754820096 - 644939776
    assert machine.versions["driver"] == "580.159.04"
    assert machine.versions["vllm"] == "0.21.0"


def test_a_machine_without_devices_is_its_processor():
    machine = machine_of(NoDevices("no_driver", "none"), versions={})

    assert machine.device_count == 0
    assert machine.device_memory_bytes == machine.memory_bytes > 0
    assert machine.cpu_count >= 1
    assert "driver" not in machine.versions
