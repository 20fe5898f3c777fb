"""A confirmation on real vLLM: fresh starts over HTTP, to a verdict and a sentence."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from autotune.confirm import Confirmer, standard_plan
from autotune.confirm.front import over_http
from autotune.domain.outcome import Measured
from autotune.domain.settings import EngineSettings
from autotune.domain.timing import Block, LevelResult
from autotune.domain.trial import Score
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.capture import captured
from autotune.engine.local import VllmEngine
from autotune.engine.processes import descendants
from autotune.engine.shape import vocabulary_size
from autotune.launch import Launcher
from autotune.models.fetch import default_cache, fetch
from autotune.score.scoring import FEASIBLE
from autotune.store.confirmations import ConfirmationStore
from autotune.store.facts import FactStore


pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]

WORKLOAD = Workload(
    "w",
    prompt_tokens=32,
    output_tokens=16,
    requests=8,
    blocks=1,
    levels=(ClosedLoop(8),),
)
FIXED = {
    "enforce_eager": True,
    "max_model_len": 128,
    "kv_cache_memory_bytes": 64 * 2**20,
}
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
MACHINE = {"host": "here", "device": "cpu", "device_count": 0, "versions": {}}
# One at a time against eight at once: slower in every round, on any machine.
SLOW, FAST = {"max_num_seqs": 1}, {"max_num_seqs": 8}


class Silent:
    def phase(self, number, member, phase):
        pass

    def ran(self, run):
        pass


@pytest.fixture(scope="module")
def model():
    """Real weights: their tokens have text, as those of a random model do not."""
    return str(fetch("smollm2-135m", cache=default_cache()))


def add_trial(store, epoch, model, changes, *, number, role, score):
    settings = EngineSettings(model, {**FIXED, **changes}, ENVIRONMENT)
    launch = store.begin_launch(
        "s", epoch=epoch, number=number, role=role, settings=settings, changes=changes
    )
    label = WORKLOAD.levels[0].label
    block = Block("w", label, 0, datetime.now(UTC), 1.0, ())
    store.record_block(launch, block)
    store.finish_launch(
        launch,
        outcome=Measured((LevelResult("w", label, (block,)),)),
        effective=changes,
        phases_s={},
        score=Score(score, dict(FEASIBLE)),
    )


@pytest.fixture
def study(model, workplace):
    """As if a study had found that eight at once are better than one."""
    spec = {
        "model": "smollm2-135m",
        "workloads": [
            {"name": "w", "prompt_tokens": 32, "output_tokens": 16, "requests": 8}
            | {"blocks": 1, "levels": ["8 at once"]}
        ],
    }
    (workplace / "studies").mkdir()
    store = FactStore("sqlite:///studies/s.db")
    store.create_study("s", spec)
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, model, SLOW, number=0, role="baseline", score=1.0)
    add_trial(store, epoch, model, FAST, number=1, role="trial", score=0.5)
    yield store
    store.release()


def test_eight_at_once_win_again_over_http(study, model, workplace):
    launcher = Launcher(
        VllmEngine(), (WORKLOAD,), vocabulary_size(model), captured, front=over_http
    )
    confirmer = Confirmer(
        study="s",
        store=study,
        launcher=launcher,
        log_folder=workplace / "logs",
        machine=MACHINE,
        progress=Silent(),
        plan=standard_plan(2),
    )

    said = confirmer.run()

    assert descendants() == frozenset()
    kept = ConfirmationStore(study)
    (stored,) = kept.of_study("s")
    runs = kept.runs(stored.confirmation_id)
    assert [r.round_number for r in runs] == [1, 1, 2, 2]
    assert all(r.failure is None and r.metrics["TPOT"] > 0 for r in runs)
    by_member = {n: [r.score for r in runs if r.member == n] for n in ("trial 1",)}
    baseline = [r.score for r in runs if r.member == "baseline"]
    assert max(by_member["trial 1"]) < min(baseline)
    assert stored.state == "decided"
    assert said.rounds_count == 2

    command = [sys.executable, "-m", "autotune", "confirm", "--study", "s"]
    refused = subprocess.run(
        [*command, "--rounds", "1"], check=False, capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "from 2 to 12" in refused.stderr
    assert json.loads(json.dumps(stored.verdicts))["baseline"]["kind"]
