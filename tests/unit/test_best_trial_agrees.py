"""The dashboard ignores constraints; even so it names the best trial that we name."""

import itertools
from datetime import UTC, datetime

import pytest

from autotune.cli.export import best_trial
from autotune.dashboard.page import Page
from autotune.domain.outcome import Evidence, Infeasible, Measured, OutOfMemory
from autotune.domain.settings import EngineSettings
from autotune.domain.space import IntKnob, SearchSpace
from autotune.domain.timing import Block, LevelResult, RequestTiming
from autotune.score.scoring import score
from autotune.store.facts import FactStore
from autotune.strategy.study import OptunaStudy


SPACE = SearchSpace("s", {}, {}, (IntKnob("knob", 1, 64),))
EVIDENCE = Evidence("oom_weights", "settings", "out of memory")
KILLED = Infeasible(Evidence("invalid_config", "settings", "no"))
STARVED = OutOfMemory("oom_kv_cache", EVIDENCE, 1, 10**12)


def measured(ttft_s, tpot_s):
    """Four requests with exactly these latencies."""
    timings = tuple(
        RequestTiming(
            request_id=str(index),
            workload="w",
            level="2 at once",
            block=0,
            group=0,
            scheduled_s=0.0,
            sent_s=0.0,
            first_token_s=ttft_s,
            last_token_s=ttft_s + 9 * tpot_s,
            token_offsets_s=tuple(ttft_s + i * tpot_s for i in range(10)),
            prompt_tokens=4,
            output_tokens=10,
            cached_tokens=None,
            finish_reason="length",
        )
        for index in range(4)
    )
    block = Block("w", "2 at once", 0, datetime.now(UTC), 1.0, timings, (), None, {})
    return Measured((LevelResult("w", "2 at once", (block,)),))


@pytest.fixture
def both(tmp_path):
    """Tells outcomes to a study; the best number by us and by the dashboard's API."""
    counter = itertools.count()

    def name_best(*outcomes):
        url = f"sqlite:///{tmp_path}/{next(counter)}.db"
        store, study = FactStore(url), OptunaStudy(url, name="s", space=SPACE)
        store.create_study("s", {})
        epoch = store.begin_epoch("s", {})
        reference = next((o.levels for o in outcomes if isinstance(o, Measured)), None)
        for number, outcome in enumerate(outcomes):
            judged = score(outcome, reference)
            assert study.begin({"knob": number + 1}) == number
            launch = store.begin_launch(
                "s",
                epoch=epoch,
                number=number,
                role="trial" if number else "baseline",
                settings=EngineSettings("m", {}, {}),
                changes={},
            )
            store.finish_launch(
                launch, outcome=outcome, effective={}, phases_s={}, score=judged
            )
            study.tell(number, judged, attributes={})
        ours = best_trial(store.trials("s", with_levels=False))
        optunas = study.best_number()
        store.release()
        study.release()
        page = Page(url)
        theirs = page.study(page.study_id("s"))["best_trials"]
        return (
            None if ours is None else ours.number,
            optunas,
            [t["number"] for t in theirs],
        )

    return name_best


SLOW, BASE, FAST = measured(0.4, 0.04), measured(0.1, 0.01), measured(0.05, 0.005)
ENDLESS = measured(1e9, 1e9)


@pytest.mark.parametrize(
    ("outcomes", "best"),
    [
        ((BASE, SLOW, FAST), 2),
        ((BASE, FAST, STARVED, KILLED), 1),
        ((BASE, STARVED, SLOW), 0),
        ((STARVED, KILLED, BASE), 2),
        ((BASE, BASE, BASE), 0),
        ((STARVED, FAST, ENDLESS), 1),
    ],
    ids=["a winner", "with failures", "defaults", "no defaults", "tie", "capped"],
)
def test_the_dashboard_names_our_best_trial(both, outcomes, best):
    assert both(*outcomes) == (best, best, [best])


def test_where_nothing_is_feasible_no_trial_is_ours(both):
    """The dashboard has no such word and shows one; its score gives it away."""
    ours, optunas, theirs = both(STARVED, KILLED)

    assert (ours, optunas) == (None, None)
    assert len(theirs) == 1
