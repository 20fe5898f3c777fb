"""The driver of this host: what a recording stands for."""

import json

import pytest

from autotune.hardware import inventory
from autotune.hardware.conditions import read_conditions, watching
from autotune.hardware.devices import Inventory, NoDevices, read_devices
from autotune.hardware.driver import DriverNvml
from autotune.hardware.nvml import FUNCTION_NOT_FOUND, Refused
from autotune.hardware.recording import Recorder, Recording


def test_this_host_answers_with_devices_or_with_one_line():
    found = inventory()

    assert isinstance(found, Inventory | NoDevices)
    if isinstance(found, NoDevices):
        assert found.line
        assert "\n" not in found.line


def test_a_function_that_no_library_has_is_refused():
    answer = DriverNvml().ask("nvmlDeviceGetMoodOfTheDay")

    assert isinstance(answer, Refused)
    assert answer.code == FUNCTION_NOT_FOUND


@pytest.mark.gpu
def test_a_real_reading_replays_to_the_same_devices():
    recorder = Recorder(DriverNvml())

    found = read_devices(recorder, environment={})
    again = read_devices(
        Recording(json.loads(json.dumps(recorder.answers))), environment={}
    )

    assert isinstance(found, Inventory)
    assert again == found
    assert all(d.total_bytes > d.free_bytes > 0 for d in found.devices)
    assert all(d.capability is not None for d in found.devices)


@pytest.mark.gpu
def test_a_real_device_tells_its_conditions():
    nvml = DriverNvml()

    with watching(nvml) as opened:
        conditions = read_conditions(nvml, 0)

    assert opened
    assert conditions.temperature_c is not None
    assert conditions.throttle is not None
