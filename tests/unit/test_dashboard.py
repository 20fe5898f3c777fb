"""The dashboard of a study: found, noted, served here only, readable in a browser."""

import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from autotune.cli.dashboard import notes, served_files
from autotune.dashboard.files import with_files
from autotune.dashboard.page import Page
from autotune.dashboard.server import local_server
from autotune.dashboard.timeline import timeline
from autotune.domain.outcome import Evidence, Infeasible, Measured
from autotune.domain.settings import EngineSettings
from autotune.domain.space import IntKnob, SearchSpace
from autotune.domain.timing import Block, LevelResult, RequestTiming
from autotune.domain.trial import Score
from autotune.errors import InputError
from autotune.store.facts import FactStore, opened
from autotune.store.upkeep import launch_ids
from autotune.strategy.study import OptunaStudy
from autotune.tune import attributes


SPACE = SearchSpace("s", {}, {}, (IntKnob("max_num_seqs", 1, 64),))
SETTINGS = EngineSettings("m", {}, {})
LINE = "ValueError: <b>max_num_seqs</b> is | too large"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def measured(ttft_s):
    place = {"workload": "w", "level": "2 at once", "block": 0}
    timing = RequestTiming(
        request_id="r",
        **place,
        group=0,
        scheduled_s=0.0,
        sent_s=0.0,
        first_token_s=ttft_s,
        last_token_s=ttft_s + 0.1,
        token_offsets_s=(ttft_s, ttft_s + 0.1),
        prompt_tokens=4,
        output_tokens=2,
        cached_tokens=None,
        finish_reason="length",
    )
    moment = datetime.now(UTC)
    block = Block("w", "2 at once", 0, moment, 1.0, (timing,), (), None, {})
    return Measured((LevelResult("w", "2 at once", (block,)),))


OUTCOMES = (
    (measured(0.2), Score(1.0, {"settings": -1.0})),
    (measured(0.1), Score(0.7, {"settings": -1.0})),
    (
        Infeasible(Evidence("invalid_config", "settings", LINE, "Lower it.", "a.log")),
        Score(1000.0, {"settings": 1.0}),
    ),
)


@pytest.fixture
def study(tmp_path):
    """A study of three trials: its URL and what our side knows of it."""
    url = f"sqlite:///{tmp_path}/s.db"
    store, told = FactStore(url), OptunaStudy(url, name="answers", space=SPACE)
    store.create_study("answers", {})
    epoch = store.begin_epoch("answers", {})
    for number, (outcome, judged) in enumerate(OUTCOMES):
        told.begin({"max_num_seqs": number + 8})
        launch = store.begin_launch(
            "answers",
            epoch=epoch,
            number=number,
            role="trial" if number else "baseline",
            settings=SETTINGS,
            changes={"max_num_seqs": number + 8} if number else {},
        )
        for level in getattr(outcome, "levels", ()):
            for block in level.blocks:
                store.record_block(launch, block)
        store.finish_launch(
            launch,
            outcome=outcome,
            effective={"max_num_seqs": number + 8},
            phases_s={"start": 2.0},
            score=judged,
        )
        trial = store.trials("answers")[-1]
        told.tell(number, judged, attributes=attributes(trial))
    found = store.trials("answers")
    store.release()
    told.release()
    return url, found


@contextmanager
def served(application):
    server = local_server(application, port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_trials_carry_figures_and_failure_classes_as_attributes(study):
    page = Page(study[0])

    trials = page.study(page.study_id("answers"))["trials"]

    shown = [{a["key"]: a["value"] for a in t["user_attrs"]} for t in trials]
    assert "w 2 at once TTFT p95 ms" in shown[1]
    assert "invalid_config" in shown[2]["outcome"]


def test_notes_say_what_differs_what_was_measured_and_why_it_failed(study):
    text = notes(study[1])

    assert set(text) == {0, 1, 2}
    assert "vLLM's defaults" in text[0]
    assert "max_num_seqs=9" in text[1]
    assert "TTFT p50 100.0 ms" in text[1]
    assert "| `max_num_seqs` | `9` |" in text[1]
    assert f"    {LINE}" in text[2]
    assert "Lower it." in text[2]
    assert "`a.log`" in text[2]


def test_notes_are_written_once_and_what_somebody_wrote_stays(study):
    page = Page(study[0])
    key = page.study_id("answers")

    assert page.write_notes(key, {0: "mine"}) == 1
    assert page.write_notes(key, notes(study[1])) == 2
    assert page.write_notes(key, notes(study[1])) == 0

    trials = page.study(key)["trials"]
    assert trials[0]["note"]["body"] == "mine"
    assert "max_num_seqs=9" in trials[1]["note"]["body"]


def test_notes_do_not_touch_what_was_told(study):
    page = Page(study[0])
    key = page.study_id("answers")
    before = [(t["number"], t["values"], t["state"]) for t in page.study(key)["trials"]]

    page.write_notes(key, notes(study[1]))

    after = [(t["number"], t["values"], t["state"]) for t in page.study(key)["trials"]]
    assert after == before


def test_it_listens_on_this_machine_only_and_serves_the_file(study):
    page = Page(study[0])
    with served(page.application) as address:
        summary = json.load(urllib.request.urlopen(f"{address}/api/studies"))  # noqa: S310 - our own server

    assert [s["study_name"] for s in summary["study_summaries"]] == ["answers"]
    assert address.startswith("http://127.0.0.1:")


def test_log_configuration_and_timing_of_a_trial_are_served(study, tmp_path):
    url, trials = study
    (tmp_path / "launch-0003.log").write_text("<script>alert(1)</script>")
    with opened(url) as store:
        files = served_files(trials, launch_ids(store, "answers"), tmp_path)
    answers = {}

    with served(with_files(Page(url).application, files)) as address:
        for name in ("2/engine.log", "1/effective.json", "1/timing.svg"):
            path = f"/autotune/trials/{name}"
            with urllib.request.urlopen(address + path) as answer:  # noqa: S310 - our own server
                answers[name] = answer.read().decode(), answer.headers
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/autotune/trials/1/engine.log")  # noqa: S310
        urllib.request.urlopen(f"{address}/api/studies").close()  # noqa: S310

    text, headers = answers["2/engine.log"]
    assert text == "<script>alert(1)</script>"
    assert headers["Content-Type"].startswith("text/plain")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(answers["1/effective.json"][0]) == {"max_num_seqs": 9}
    picture = ET.fromstring(answers["1/timing.svg"][0])  # noqa: S314 - our own
    lines = picture.findall("{http://www.w3.org/2000/svg}line")
    assert [line.get("class") for line in lines] == ["wait", "answer"]


def test_the_picture_shows_waiting_and_answering_to_scale():
    text = timeline(measured(0.1).levels)

    assert 'class="wait" x1="10.0" x2="400.0"' in text
    assert 'class="answer" x1="400.0" x2="790.0"' in text


def test_a_picture_of_many_requests_stays_readable():
    (level,) = measured(0.1).levels
    (block,) = level.blocks
    many = replace(block, timings=block.timings * 1000)

    text = timeline((replace(level, workload="<&>", blocks=(many,)),))

    assert text.count('class="wait"') == 200
    assert "the first 200 of 1000" in text
    ET.fromstring(text)  # noqa: S314 - our own


def test_a_run_goes_on_while_the_dashboard_is_open(study):
    """Trials told meanwhile are in the file at once, and on the page."""
    url, _ = study
    page = Page(url)
    key = page.study_id("answers")
    page.study(key)

    running = OptunaStudy(url, name="answers", space=SPACE)
    number = running.begin({"max_num_seqs": 30})
    page.write_notes(key, {0: "during the run"})
    running.tell(number, Score(0.6, {"settings": -1.0}), attributes={})
    running.release()

    fresh = Page(url)
    assert [t["number"] for t in fresh.study(key)["best_trials"]] == [number]


def test_a_port_in_use_is_named(study):
    page = Page(study[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"--port {port} is in use"):
            local_server(page.application, port=port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_named(study, port):
    with pytest.raises(InputError, match=f"--port {port} cannot be used"):
        local_server(Page(study[0]).application, port=port)


def test_a_study_that_only_we_know_is_refused(study):
    with pytest.raises(InputError, match="no study 'other'"):
        Page(study[0]).study_id("other")


def browse(address, folder):
    """The page's document and the browser's console, after its scripts have run."""
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={folder}",
            "--virtual-time-budget=15000",
            "--window-size=1400,1000",
            "--dump-dom",
            address,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, re.findall(r".*:(?:INFO|ERROR):CONSOLE.*", done.stderr)


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_the_study_and_its_best_trial_without_errors(study, tmp_path):
    page = Page(study[0])
    key = page.study_id("answers")
    page.write_notes(key, notes(study[1]))

    with served(page.application) as address:
        document, console = browse(
            f"{address}/dashboard/studies/{key}", Path(tmp_path) / "browser"
        )

    assert "answers" in document
    text = " ".join(re.sub(r"<style.*?</style>|<[^>]+>", " ", document).split())
    assert "Best Trial (number=1) 0.7 Params = [max_num_seqs: 9]" in text
    assert console == []
