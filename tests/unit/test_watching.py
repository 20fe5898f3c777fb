"""Counters, processor time, the log and the devices are read, or None."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.engine.compiling import LogTail, compiled_line
from autotune.engine.counters import EngineCounters, difference
from autotune.engine.cpu_time import cpu_s, own_cpu_s
from autotune.engine.effective import silent_changes
from autotune.hardware.nvml import Refused
from autotune.hardware.readings import device_readings
from autotune.hardware.recording import Recording


def scheduler(*, usage=0.5, running=2, waiting=1, queries=10, hits=4):
    prefix = SimpleNamespace(queries=queries, hits=hits)
    return SimpleNamespace(
        kv_cache_usage=usage,
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        prefix_cache_stats=prefix,
    )


def iteration(*, preempted=0, queued_s=()):
    return SimpleNamespace(
        num_preempted_reqs=preempted,
        num_prompt_tokens=10,
        num_generation_tokens=3,
        finished_requests=[SimpleNamespace(queued_time=s) for s in queued_s],
    )


def test_before_the_engine_reports_every_counter_is_none():
    values = EngineCounters().read()

    assert {"kv_cache_usage_peak", "preemptions", "prefix_cache_hits"} <= set(values)
    assert set(values.values()) == {None}
    assert set(difference(values, values).values()) == {None}


def test_counters_over_a_block_are_what_it_added():
    counters = EngineCounters()
    counters.record(scheduler(), iteration(preempted=1, queued_s=(0.3,)))
    before = counters.read()
    counters.forget_peaks()
    counters.record(scheduler(usage=0.9, queries=30, hits=15), None)
    counters.record(scheduler(usage=0.2), iteration(preempted=2, queued_s=(0.1, 0.3)))

    block = difference(before, counters.read())

    assert block["preemptions"] == 2
    assert block["kv_cache_usage_peak"] == 0.9
    assert block["kv_cache_usage"] == 0.2
    assert block["prefix_hit_share"] == pytest.approx((15 + 4) / (30 + 10))
    assert block["queue_mean_s"] == pytest.approx(0.2)


def test_shares_of_nothing_are_none():
    counters = EngineCounters()
    counters.record(scheduler(queries=0, hits=0), iteration())

    block = difference({}, counters.read())

    assert block["prefix_hit_share"] is None
    assert block["queue_mean_s"] is None


def test_a_tail_reads_what_was_appended_since_and_survives_a_missing_log(tmp_path):
    log = tmp_path / "log"
    tail = LogTail(log)
    assert tail.read() == ""

    log.write_bytes(b"one \xff\n")
    assert "one" in tail.read()
    with log.open("a") as out:
        out.write("two\n")

    assert tail.read() == "two\n"
    assert tail.read() == ""


@pytest.mark.parametrize(
    "line",
    [
        (
            "WARNING [jit_monitor.py:97] Triton JIT compilation during inference: k. "
            "This causes a latency spike; consider extending warmup"
        ),
        (
            "WARNING [jit_monitor.py:9] CuTeDSL compile during inference: f (x). This "
            "causes a latency spike"
        ),
        "WARNING Triton kernel JIT compilation during inference: k",
        "Triton autotuning for function _k finished after 1.2s",
    ],
)
def test_words_of_kernels_compiled_under_load_are_known(line):
    assert compiled_line(f"INFO all well\n{line}\nmore") == line


def test_that_the_watch_for_compilation_began_is_no_compilation():
    said = (
        "INFO Kernel JIT monitor activated; monitored JIT compilations during "
        "inference will use mode=warn."
    )

    assert compiled_line(said) is None


def test_processor_seconds_are_those_of_the_processes_that_can_be_read():
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; sum(range(10**6)); print(); sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        child.stdout.readline()
        spent = cpu_s([child.pid, 2**22 + 1])
        child.stdin.close()

    assert spent > 0
    assert cpu_s([2**22 + 1]) is None
    assert cpu_s([]) is None
    assert own_cpu_s() > 0
    assert cpu_s([os.getpid()]) > 0


READING = json.loads(
    (Path(__file__).parents[1] / "data/nvml/two_h200.json").read_text()
)


def test_devices_are_read_as_plain_numbers_by_cudas_count():
    readings = device_readings(Recording(READING), environment={})()

    assert readings["gpu0_sm_clock_mhz"] == 1980
    assert readings["gpu0_power_w"] == pytest.approx(88.08)
    assert readings["gpu1_slowed"] == 0
    assert readings["gpu0_used_bytes"] >= 0
    assert readings["gpu0_holders"] >= 0
    assert {type(v) for v in readings.values()} <= {float, type(None)}


def test_only_visible_devices_are_read_and_counted_from_zero():
    environment = {"CUDA_VISIBLE_DEVICES": "1"}

    readings = device_readings(Recording(READING), environment=environment)()

    assert readings["gpu0_sm_clock_mhz"] is not None
    assert not any(name.startswith("gpu1_") for name in readings)


def test_what_a_device_does_not_say_is_none():
    silent = {"refused": 3, "text": "not supported"}
    answers = READING | {"nvmlDeviceGetPowerUsage #0": silent}

    readings = device_readings(Recording(answers), environment={})()

    assert readings["gpu0_power_w"] is None
    assert readings["gpu1_power_w"] is not None


def test_without_a_driver_there_is_nothing_to_read():
    class Absent:
        def ask(self, function, *arguments):
            return Refused(12, "library not found")

    assert device_readings(Absent(), environment={})() == {}


def test_what_the_engine_changed_silently_is_named():
    asked = {
        "block_size": 16,
        "kv_cache_dtype": "fp8",
        "dtype": "auto",
        "compilation_config.cudagraph_mode": "piecewise",
        "enforce_eager": True,
        "swap_space": 4,
    }
    effective = {
        "block_size": 128,
        "kv_cache_dtype": "auto",
        "dtype": "bfloat16",
        "compilation_config.cudagraph_mode": "PIECEWISE",
        "enforce_eager": True,
    }

    assert silent_changes(asked, effective) == {
        "block_size": (16, 128),
        "kv_cache_dtype": ("fp8", "auto"),
    }
