"""One measurement without a study: over HTTP, and of what a launch came to."""

import contextlib
import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.cli.measured import say, to_json
from autotune.cli.measuring import measurement
from autotune.domain.outcome import Measured, Saturated
from autotune.domain.settings import EngineSettings
from autotune.domain.timing import Block, LevelResult, RequestFailure, RequestTiming
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.scripted import Answers, FailsAtStart, Scene, ScriptedEngine
from autotune.errors import HostUnfit, InputError
from autotune.launch import Launcher
from autotune.load.lag import Lag, LagBounds
from autotune.load.mock_server import MockLatency, running_mock
from autotune.load.self_test import Reading, SelfTestReport
from autotune.score.bench_fields import bench_fields


ANYTHING = LagBounds(1e9, 1e9)


@pytest.fixture(scope="module")
def mock():
    with running_mock(MockLatency(ttft_s=0.02, itl_s=0.002)) as url:
        yield url


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Believe every block: these tests may share the machine with others."""
    monkeypatch.setattr("autotune.launch.DIRECT_BOUNDS", ANYTHING)
    monkeypatch.setattr("autotune.cli.measuring.HTTP_BOUNDS", ANYTHING)


def bench(*words):
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def measured(mock, *words):
    done = bench("--endpoint", mock, "--json", *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_an_endpoint_is_measured_by_its_own_name_for_the_model(mock):
    found = measured(mock, "--concurrency", 4)

    (level,) = found["levels"]
    assert (found["driven"], found["model"]) == ("http", "mock")
    assert (level["level"], level["workload"]) == ("4 at once", "smoke")
    assert level["ended"] in ("narrow", "most_blocks")
    assert level["figures"]["ttft_p50_ms"] >= 20
    assert level["figures"]["requests"] == 24


def test_the_names_of_vllms_own_bench_stand_beside_ours(mock):
    found = measured(mock, "--rate", 200, "--requests", 10, "--most-blocks", 1)

    theirs = found["levels"][0]["vllm_bench_serve"]
    assert theirs["completed"] == found["completed"] == 10
    assert found["total_input_tokens"] == 320
    assert found["total_output_tokens"] == 160
    assert found["mean_ttft_ms"] >= 20
    assert found["median_tpot_ms"] == pytest.approx(2, rel=0.5)
    assert found["output_throughput"] == pytest.approx(16 * found["request_throughput"])


def test_two_load_processes_measure_the_same_endpoint(mock):
    found = measured(mock, "--concurrency", 4, "--processes", 2, "--most-blocks", 1)

    assert found["processes"] == 2
    assert found["completed"] == 8


def test_a_table_and_why_the_level_ended_are_for_people(mock):
    done = bench("--endpoint", mock, "--concurrency", 4, "--most-blocks", 2)

    assert done.exit_code == 0
    assert "TTFT p95 ms" in done.output
    assert "ended by most blocks" in done.output


def test_without_a_seed_an_endpoint_gets_other_prompts_each_time(mock):
    words = ("--concurrency", 8, "--most-blocks", 1)
    first, second = (measured(mock, *words)["seed"] for _ in range(2))

    assert first != second
    assert measured(mock, *words, "--seed", 5)["seed"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--model"),
        (("--model", "m", "--rate", 1, "--concurrency", 1), "give one"),
        (("--model", "m", "--rate", 0), "above 0"),
        (("--model", "m", "--concurrency", 0), "at least 1"),
        (("--model", "m", "--requests", 0), "at least 1"),
        (("--model", "m", "--most-blocks", 0), "at least 1"),
        (("--model", "m", "--precision", 0), "share above 0"),
        (("--model", "m", "--most-seconds", 0), "seconds above 0"),
        (("--model", "m", "--workload", "chatt"), "unknown workload"),
        (("--model", "m", "--dialect", "french"), "vllm or openai"),
        (("--model", "m", "--processes", 2), "go with --endpoint"),
        (("--endpoint", "http://127.0.0.1:9", "--fix", "seed=1"), "runs already"),
        (("--endpoint", "nowhere"), "want http"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(words, said):
    done = bench(*words)

    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_a_model_that_is_not_served_is_bad_input_and_names_what_is(mock):
    done = bench("--endpoint", mock, "--model", "another")

    assert isinstance(done.exception, InputError)
    assert "serves mock, not 'another'" in str(done.exception)


def test_an_endpoint_that_does_not_answer_is_the_environments_fault():
    done = bench("--endpoint", "http://127.0.0.1:9")

    assert isinstance(done.exception, HostUnfit)
    assert "Is the server up" in str(done.exception)


WORKLOAD = Workload("w", 4, 3, requests=4, blocks=2, levels=(ClosedLoop(2),))


def launched(tmp_path, *scenes, conditions=dict):
    launcher = Launcher(
        ScriptedEngine(scenes),
        (WORKLOAD,),
        1000,
        lambda _: contextlib.nullcontext(),
        conditions=conditions,
    )
    outcome = launcher.launch(
        EngineSettings("m"),
        log_path=tmp_path / "log",
        keep=lambda _: None,
        progress=lambda _: None,
    ).outcome
    return measurement("direct", {}, outcome)


def test_an_engine_that_answers_is_measured_and_exits_with_0(tmp_path):
    found = launched(tmp_path)

    assert (found.exit_code, found.outcome) == (0, "measured")
    assert to_json(found)["completed"] == 8


def test_settings_that_do_not_start_exit_with_1_and_say_why(tmp_path):
    text = "ValueError: No available memory for the cache blocks."

    found = launched(tmp_path, Scene(FailsAtStart(text)))

    assert (found.exit_code, found.outcome) == (1, "oom_kv_cache")
    assert "No available memory" in found.line
    assert to_json(found)["levels"] == []


def test_requests_that_are_all_refused_exit_with_1(tmp_path):
    found = launched(tmp_path, Scene(Answers(refuses="too long")))

    assert (found.exit_code, found.outcome) == (1, "all_requests_failed")
    assert found.line == "too long"
    assert to_json(found)["mean_ttft_ms"] is None


def test_void_blocks_alone_are_inconclusive(tmp_path):
    holders = iter(range(1000))

    found = launched(
        tmp_path, conditions=lambda: {"gpu0_holders": float(next(holders))}
    )

    assert (found.exit_code, found.outcome) == (4, "void")
    assert "another process" in found.line


def timing(index, *, sent=0.1, first=0.3, last=0.7, tokens=3, stamps=(0.3, 0.5, 0.7)):
    return RequestTiming(
        f"r{index}", "w", "l", 0, 0, 0.0, sent, first, last, stamps, 5, tokens, 0, "x"
    )


def block(*timings, void=None, failures=()):
    return Block(
        "w", "l", 0, datetime.now(UTC), 2.0, timings, failures=failures, void=void
    )


def test_vllms_figures_are_by_vllms_formulae():
    one_token = timing(1, sent=0.2, last=0.3, tokens=1, stamps=(0.3,))
    failure = RequestFailure("r9", "w", "l", 0, 0.0, 0.0, 1.0, "x")
    level = LevelResult(
        "w",
        "l",
        (
            block(timing(0), one_token, failures=(failure,)),
            block(timing(2)),
            block(timing(3, first=9.0), void="disturbed"),
        ),
    )

    fields = bench_fields(level)

    assert (fields["completed"], fields["failed"]) == (3, 1)
    assert fields["duration"] == 4
    assert fields["request_throughput"] == 0.75
    assert (fields["total_input_tokens"], fields["total_output_tokens"]) == (15, 7)
    ttfts = [200.0, 100.0, 200.0]  # from the actual send
    assert fields["mean_ttft_ms"] == pytest.approx(np.mean(ttfts))
    assert fields["p99_ttft_ms"] == pytest.approx(np.percentile(ttfts, 99))
    assert fields["mean_tpot_ms"] == pytest.approx(200.0)
    assert fields["mean_itl_ms"] == pytest.approx(200.0)
    assert fields["mean_e2el_ms"] == pytest.approx((600 + 100 + 600) / 3)


def test_saturation_is_said_with_what_is_sustained():
    found = measurement(
        "direct", {}, Saturated(3.25, (LevelResult("w", "l", (block(timing(0)),)),))
    )

    assert found.exit_code == 0
    assert "3.25 requests/s" in found.line


def test_json_has_null_where_a_figure_is_unknown():
    one = replace(timing(0, tokens=1, stamps=(0.3,)), last_token_s=0.3)
    level = LevelResult("w", "l", (block(one),))

    document = json.loads(
        json.dumps(to_json(measurement("direct", {}, Measured((level,)))))
    )

    figures = document["levels"][0]["figures"]
    assert figures["tpot_mean_ms"] is None
    assert not any(
        isinstance(v, float) and math.isnan(v) for v in figures.values() if v
    )


def test_random_weights_are_said_with_the_result(capsys):
    settings = EngineSettings("m", {"load_format": "dummy"}).to_json()
    level = LevelResult("w", "l", (block(timing(0)),))
    found = measurement("direct", {"settings": settings}, Measured((level,)))

    say(found, as_json=False)

    assert "dummy weights" in capsys.readouterr().out
    assert to_json(found)["note"] == "speed only, dummy weights"


def reading(streams, void=None):
    lag = Lag(mean_s=0.0, p99_s=0.001, max_s=0.002, sample_count=100)
    return Reading(streams, 1, (), 0.2, 0.201, 0.02, 100.0, lag, void)


@pytest.mark.parametrize(
    ("voids", "ceiling", "exit_code"),
    [((None, None, "lag"), 32, 0), (("lag", None, None), 0, 4)],
)
def test_the_ruler_measures_itself_and_states_its_ceiling(
    monkeypatch, voids, ceiling, exit_code
):
    readings = tuple(map(reading, (8, 32, 64), voids))
    report = SelfTestReport(MockLatency(), readings)
    monkeypatch.setattr("autotune.cli.bench.self_test", lambda streams: report)

    text, document = bench("--self-test"), bench("--self-test", "--json")

    assert text.exit_code == document.exit_code == exit_code
    assert f"measures up to {ceiling} streams" in text.output
    found = json.loads(document.output)
    assert found["ceiling_streams"] == ceiling
    assert [r["void"] for r in found["readings"]] == list(voids)
    assert found["readings"][0]["ttft_p50_ms"] == 200
