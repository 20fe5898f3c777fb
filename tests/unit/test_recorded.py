"""Recorded studies: written whole, read back equal, and true to their own scores."""

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli.recording import command_of, record, recording_table
from autotune.cli.trials import trials as show_trials
from autotune.errors import InputError
from autotune.memory import (
    Device,
    MemoryModel,
    Observation,
    calibrate,
    read_shape,
)
from autotune.store.recorded import (
    LevelFigures,
    read_recording,
    recording_from_json,
    recording_to_json,
    write_recording,
)


TOP = Path(__file__).parents[2]
FOLDER = TOP / "studies" / "recorded"
NAMES = ("glm-h200", "glm-cover")
STARTS = json.loads(
    (TOP / "tests/data/memory/h200_glm4_starts.json").read_text(encoding="utf-8")
)
GIB = 2**30


@pytest.fixture(params=NAMES)
def recording(request):
    return read_recording(FOLDER / f"{request.param}.json")


def launches(recording):
    for epoch in recording.epochs:
        yield epoch.baseline, epoch.baseline
        for trial in epoch.trials:
            yield trial, epoch.baseline


def test_a_recording_written_and_read_again_is_equal(recording, tmp_path):
    path = tmp_path / "new folder" / "study.json"

    write_recording(path, recording)

    assert read_recording(path) == recording


def test_every_launch_has_the_keys_that_readers_rely_on(recording):
    data = recording_to_json(recording)

    assert {"schema", "command", "machine", "vllm", "weights"} <= data.keys()
    for epoch in data["epochs"]:
        for trial in (epoch["baseline"], *epoch["trials"]):
            assert trial.keys() >= {
                "settings",
                "effective",
                "outcome",
                "score",
                "ttft_p50_ms",
                "ttft_p95_ms",
                "tpot_mean_ms",
                "itl_p99_ms",
                "output_tokens_per_s",
                "requests",
                "phases",
            }


def test_a_trials_own_figures_are_those_of_the_level_measured_first(recording):
    data = recording_to_json(recording)

    for trial in data["epochs"][0]["trials"]:
        assert trial["ttft_p95_ms"] == trial["levels"][0]["ttft_p95_ms"]


def test_recorded_scores_follow_from_recorded_figures(recording):
    """Square root of p95 TTFT ratio x mean TPOT ratio, geometric over workloads."""
    measured = [p for p in launches(recording) if p[0].outcome == "measured"]
    assert len(measured) >= 9

    for trial, baseline in measured:
        logs = [
            math.log(a.ttft_p95_ms / b.ttft_p95_ms * a.tpot_mean_ms / b.tpot_mean_ms)
            for a, b in zip(trial.levels, baseline.levels, strict=True)
        ]
        assert trial.score == pytest.approx(
            math.exp(sum(logs) / len(logs) / 2), rel=1e-4
        )


def test_a_saturated_launch_never_looks_better_than_a_measured_one(recording):
    outcomes = {"measured": [], "saturated": []}
    for trial, _ in launches(recording):
        outcomes[trial.outcome].append(trial.score)

    assert outcomes["saturated"]
    assert min(outcomes["saturated"]) > max(outcomes["measured"])


def test_no_recorded_launch_repeats_another(recording):
    for epoch in recording.epochs:
        ran = [json.dumps(t.changes, sort_keys=True) for t in epoch.trials]
        assert len(set(ran)) == len(ran)


def test_captured_sizes_ran_as_recorded(recording):
    """vLLM truncates them to a full batch; the space's rule forestalls that."""
    name = "compilation_config.max_cudagraph_capture_size"
    for trial, _ in launches(recording):
        assert trial.effective[name] == trial.changes.get(name, 512)


def test_one_start_foretells_the_kv_tokens_of_all_later_launches(recording):
    """Within 3 %, from what the baseline's own log states."""
    epoch = recording.epochs[0]
    base = epoch.baseline
    known = {k: v for k, v in base.effective.items() if not k.startswith("kv_")}
    known["kv_cache_dtype"] = base.effective["kv_cache_dtype"]
    device = Device("cuda", epoch.machine["device_memory_bytes"])
    model = calibrate(
        MemoryModel(read_shape(STARTS["config"]), device),
        Observation(
            weights_bytes=round(17.56 * GIB),
            kv_bytes=round(108.06 * GIB),
            kv_tokens=base.effective["kv_tokens"],
            graphs_bytes=round(0.71 * GIB),
            estimate_bytes=round(0.54 * GIB),
        ),
        arguments=known | base.settings,
    )

    for trial in epoch.trials:
        found = model.predict(known | trial.settings)
        assert found.kv_tokens == pytest.approx(trial.effective["kv_tokens"], rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_exporting_the_kept_database_gives_the_recorded_file(name, tmp_path):
    """Its token stamps were dropped to keep it small, and ITL with them."""
    database = tmp_path / f"{name}.db"
    database.write_bytes(lzma.decompress((FOLDER / f"{name}.db.xz").read_bytes()))
    kept = read_recording(FOLDER / f"{name}.json")

    again = record(name, f"sqlite:///{database}", command=kept.command)

    expected = recording_to_json(without_itl(kept))
    assert recording_to_json(again) == expected


def without_itl(recording):
    def bare(trial):
        levels = tuple(replace(v, itl_p99_ms=None) for v in trial.levels)
        return replace(trial, levels=levels)

    epochs = tuple(
        replace(
            epoch,
            baseline=bare(epoch.baseline),
            trials=tuple(bare(t) for t in epoch.trials),
        )
        for epoch in recording.epochs
    )
    return replace(recording, epochs=epochs)


def test_a_figure_that_does_not_exist_is_null():
    level = LevelFigures("w", "1 req/s", 1.0, 2.0, math.nan, math.nan, 3.0, 4)
    recording = read_recording(FOLDER / "glm-h200.json")
    epoch = recording.epochs[0]
    trial = replace(epoch.trials[0], levels=(level,))
    changed = replace(recording, epochs=(replace(epoch, trials=(trial,)),))

    data = json.loads(json.dumps(recording_to_json(changed), allow_nan=False))

    assert data["epochs"][0]["trials"][0]["tpot_mean_ms"] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "schema None"),
        ('{"schema": "autotune-recorded/99"}', "autotune-recorded/99"),
        ('{"schema": "autotune-recorded/1", "study": "x"}', "command"),
        ("not json", "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
def test_another_file_is_refused_by_name(text, reason, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError, match=reason) as caught:
        read_recording(path)

    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"gone\.json"):
        read_recording(tmp_path / "gone.json")


def test_the_command_is_rebuilt_from_what_a_study_knows():
    spec = {
        "model": "/models/glm-4-9b-chat",
        "seed": 3,
        "workloads": [{"name": "chat"}, {"name": "code"}],
        "fixed": {"load_format": "dummy"},
    }

    assert command_of("mine", spec) == (
        "autotune --model glm-4-9b-chat --study mine --seed 3 "
        "--workload chat --workload code --weights dummy"
    )


def test_the_table_has_a_row_for_every_launch(recording):
    assert recording_table(recording).row_count == len(list(launches(recording)))


def test_trials_shows_a_recorded_study_without_a_database(capsys):
    show_trials(recorded=FOLDER / "glm-h200.json")

    shown = capsys.readouterr().out
    assert "speed only, dummy weights" in shown
    assert "saturated" in shown


def test_trials_needs_a_study_or_a_recording():
    with pytest.raises(InputError, match="--recorded"):
        show_trials()


def test_reading_is_the_inverse_of_showing(recording):
    assert recording_from_json(recording_to_json(recording)) == recording
