"""Finalists meet the baseline again: rounds, faults, resuming and the sentence."""

import contextlib
import io
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from rich.console import Console

from autotune.cli.app import app
from autotune.cli.confirm import Narrated, laid_over, say_confirmed, today_settings
from autotune.cli.terminal import Terminal
from autotune.confirm import Confirmer, standard_plan
from autotune.domain.outcome import EnvironmentFault, Evidence, Measured, Saturated
from autotune.domain.settings import EngineSettings
from autotune.domain.timing import Block, LevelResult, RequestFailure, RequestTiming
from autotune.domain.trial import Score
from autotune.domain.verdict import Inconclusive, NoneBeat, WorthIt
from autotune.domain.workload import ClosedLoop, LoadShare, Workload
from autotune.engine.scripted import Answers, Scene, ScriptedEngine
from autotune.errors import AutotuneError, HostUnfit, InputError
from autotune.launch import Launched, Launcher
from autotune.lint.launch_line import parse_launch_line
from autotune.load.lag import LagBounds
from autotune.score.scoring import FEASIBLE
from autotune.store.confirmations import ConfirmationStore
from autotune.store.facts import FactStore


LABEL = "2 at once"
WORKLOAD = Workload(
    "w", prompt_tokens=4, output_tokens=3, requests=4, blocks=1, levels=(ClosedLoop(2),)
)
MACHINE = {
    "host": "here",
    "device": "cpu",
    "device_count": 0,
    "versions": {"vllm": "1"},
}
BROKEN = EnvironmentFault(Evidence("network", "environment", "no route to host"))


def level(ttft_s, *, failures=(), workload="w", label=LABEL):
    """A level of four requests whose TPOT is a tenth of their TTFT."""
    timings = tuple(
        RequestTiming(
            f"r{i}", workload, label, 0, 0, 0.0, 0.0, ttft_s, ttft_s * 1.2,
            (ttft_s, ttft_s * 1.1, ttft_s * 1.2), 4, 3, 0, "length",
        )
        for i in range(4)
    )  # fmt: skip
    block = Block(workload, label, 0, datetime.now(UTC), 1.0, timings, failures)
    return LevelResult(workload, label, (block,))


@dataclass(frozen=True)
class Played:
    """A launcher that hands out what each knob's next start comes to."""

    outcomes: dict
    workloads: tuple = (WORKLOAD,)
    order: list = field(default_factory=list)
    sent: list = field(default_factory=list)

    def launch(self, settings, *, log_path, keep, progress, capacities_rps):
        knob = settings.arguments.get("knob", 1)
        self.order.append(knob)
        self.sent.append(self.workloads)
        outcome = self.outcomes[knob]
        if isinstance(outcome, list):
            outcome = outcome.pop(0) if len(outcome) > 1 else outcome[0]
        if isinstance(outcome, BaseException):
            raise outcome
        for measured in getattr(outcome, "levels", ()):
            for block in measured.blocks:
                keep(block)
        return Launched({"knob": knob}, outcome, {"start": 1.0}, datetime.now(UTC), {})


class Noted:
    """Progress, kept."""

    def __init__(self):
        self.runs = []

    def phase(self, number, member, phase):
        pass

    def ran(self, run):
        self.runs.append(run)


def settings(knob=None):
    return EngineSettings("m", {} if knob is None else {"knob": knob})


def add_trial(store, epoch, *, number, knob, score, outcome=None, role="trial"):
    outcome = outcome or Measured((level(0.1),))
    launch = store.begin_launch(
        "s",
        epoch=epoch,
        number=number,
        role=role,
        settings=settings(None if role == "baseline" else knob),
        changes={} if role == "baseline" else {"knob": knob},
    )
    for measured in outcome.levels:
        for block in measured.blocks:
            store.record_block(launch, block)
    store.finish_launch(
        launch,
        outcome=outcome,
        effective={"knob": knob, "kv_blocks": number},
        phases_s={},
        score=Score(score, dict(FEASIBLE)) if score else None,
    )


@pytest.fixture
def store(tmp_path):
    made = FactStore(f"sqlite:///{tmp_path / 'study.db'}")
    made.create_study("s", {})
    yield made
    made.release()


@pytest.fixture
def study(store):
    """A baseline and trials with knobs 2 to 6, of which 2 to 5 looked better."""
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, number=0, knob=1, score=1.0, role="baseline")
    for knob, score in ((2, 0.7), (3, 0.8), (4, 0.9), (5, 0.95), (6, 1.2)):
        add_trial(store, epoch, number=knob - 1, knob=knob, score=score)
    return store


def noisy(ttft_s, *factors):
    return [Measured((level(ttft_s * f),)) for f in (*factors, 1.0)]


BASE = (1.0, 1.01, 0.99, 1.02, 0.98)


def confirmer(store, tmp_path, launcher, *, rounds=3, **options):
    return Confirmer(
        study="s",
        store=store,
        launcher=launcher,
        log_folder=tmp_path / "logs",
        machine=options.pop("machine", MACHINE),
        progress=options.pop("progress", Noted()),
        plan=standard_plan(rounds),
        **options,
    )


def winning():
    return Played(
        {
            1: noisy(0.1, *BASE),
            2: noisy(0.07, 1.01, 0.99, 1.0),
            3: noisy(0.1, 0.99, 1.02, 1.01),
            4: noisy(0.1, 1.02, 0.97, 1.0),
        }
    )


def test_the_finalist_that_wins_again_is_named_with_its_interval(study, tmp_path):
    launcher = winning()

    said = confirmer(study, tmp_path, launcher).run()

    assert isinstance(said.settled["baseline"], WorthIt)
    assert said.winner == 1
    assert said.exit_code == 0
    (sentence,) = said.sentences
    assert sentence.startswith("score \N{MINUS SIGN}30 % [")
    assert "against vLLM's defaults, worth it" in sentence
    assert "p95 TTFT" in sentence
    assert sentence.endswith("(3 rounds)")


def test_at_most_three_finalists_better_than_the_baseline_are_started(study, tmp_path):
    launcher = winning()

    confirmer(study, tmp_path, launcher).run()

    assert set(launcher.order) == {1, 2, 3, 4}
    assert len(launcher.order) == 12


def test_the_order_changes_between_rounds_and_is_the_same_for_a_seed(study, tmp_path):
    orders = []
    for _ in range(2):
        launcher = winning()
        confirmer(study, tmp_path, launcher, seed=3).run(again=True)
        orders.append(launcher.order)

    assert orders[0] == orders[1]
    rounds = [tuple(orders[0][i : i + 4]) for i in (0, 4, 8)]
    assert len(set(rounds)) > 1


def test_every_round_sends_prompts_of_its_own_to_all_of_its_members(study, tmp_path):
    launcher = winning()

    confirmer(study, tmp_path, launcher).run()

    seeds = [sent[0].seed for sent in launcher.sent]
    assert seeds == [1] * 4 + [2] * 4 + [3] * 4
    assert WORKLOAD.seed not in seeds


def test_shares_of_capacity_become_the_rates_that_the_baseline_was_sent(
    store, tmp_path
):
    epoch = store.begin_epoch("s", MACHINE)
    rated = Measured((level(0.1, label="8.5 req/s"),))
    add_trial(store, epoch, number=0, knob=1, score=1.0, outcome=rated, role="baseline")
    add_trial(store, epoch, number=1, knob=2, score=0.5, outcome=rated)
    workload = replace(WORKLOAD, levels=(LoadShare(0.5),))
    launcher = replace(winning(), workloads=(workload,))

    confirmer(store, tmp_path, launcher).run()

    assert [v.label for v in launcher.sent[0][0].levels] == ["8.5 req/s"]


def test_finalists_that_only_were_lucky_do_not_win(study, tmp_path):
    launcher = Played({k: noisy(0.1, *f) for k, f in enumerate(
        (BASE, (1.1, 0.9, 1.0), (0.95, 1.05, 1.0), (1.0, 1.08, 0.93)), start=1
    )})  # fmt: skip

    said = confirmer(study, tmp_path, launcher).run()

    assert isinstance(said.settled["baseline"], Inconclusive)
    assert said.sentences[0].startswith("inconclusive after 3 rounds (machine noise")
    assert said.winner is None
    assert said.exit_code == 4


def test_settings_that_do_nothing_end_in_no_setting_beat(study, tmp_path):
    same = (1.0, 1.001, 0.999)
    launcher = Played({k: noisy(0.1, *same) for k in (1, 2, 3, 4)})

    said = confirmer(study, tmp_path, launcher).run()

    assert isinstance(said.settled["baseline"], NoneBeat)
    assert said.sentences[0].startswith("no setting beat vLLM's defaults")
    assert (said.winner, said.exit_code) == (None, 0)


def test_a_study_without_a_better_trial_needs_no_rounds(store, tmp_path):
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, number=0, knob=1, score=1.0, role="baseline")
    add_trial(store, epoch, number=1, knob=2, score=1.1)
    launcher = winning()

    said = confirmer(store, tmp_path, launcher).run()

    assert launcher.order == []
    assert "no setting beat vLLM's defaults" in said.sentences[0]
    assert said.exit_code == 0


def test_a_trial_that_ran_as_the_baseline_does_is_no_finalist(store, tmp_path):
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, number=0, knob=1, score=1.0, role="baseline")
    add_trial(store, epoch, number=1, knob=1, score=0.9)
    add_trial(store, epoch, number=2, knob=2, score=0.8)
    add_trial(store, epoch, number=3, knob=2, score=0.7)
    launcher = winning()

    confirmer(store, tmp_path, launcher).run()

    assert sorted(set(launcher.order)) == [1, 2]
    assert len(launcher.order) == 6


def test_a_study_in_which_nothing_is_feasible_cannot_be_confirmed(store, tmp_path):
    with pytest.raises(AutotuneError, match="no trial is feasible") as raised:
        confirmer(store, tmp_path, winning()).run()

    assert raised.value.exit_code == 1


def test_without_defaults_the_first_feasible_trial_is_the_reference(store, tmp_path):
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, number=1, knob=3, score=1.0)
    add_trial(store, epoch, number=2, knob=2, score=0.7)
    launcher = winning()

    said = confirmer(store, tmp_path, launcher).run()

    against = "against trial 1 (vLLM's defaults do not start here), worth it"
    assert against in said.sentences[0]
    assert said.winner == 2


def test_a_fault_is_retried_once_and_forgotten(study, tmp_path):
    launcher = winning()
    launcher.outcomes[2] = [BROKEN, *launcher.outcomes[2]]

    said = confirmer(study, tmp_path, launcher).run()

    assert said.winner == 1
    assert len(launcher.order) == 13


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (BROKEN, "network: no route to host"),
        (Saturated(3.5), "does not sustain the load, only 3.5"),
        (
            Measured((level(0.1, failures=(
                RequestFailure("r", "w", LABEL, 0, 0.0, 0.0, 0.1, "too long"),
            )),)),
            "1 requests failed: too long",
        ),
    ],
)  # fmt: skip
def test_a_finalist_that_fails_twice_leaves_and_the_others_go_on(
    study, tmp_path, outcome, why
):
    launcher, noted = winning(), Noted()
    launcher.outcomes[3] = [outcome]

    said = confirmer(study, tmp_path, launcher, progress=noted).run()

    assert said.winner == 1
    assert launcher.order.count(3) == 2
    (left,) = [r for r in noted.runs if r.failure]
    assert (left.member, left.score) == ("trial 2", None)
    assert why in left.failure


def test_when_every_finalist_fails_nothing_is_confirmed(study, tmp_path):
    launcher = Played({1: noisy(0.1, *BASE), 2: BROKEN, 3: BROKEN, 4: BROKEN})

    said = confirmer(study, tmp_path, launcher).run()

    assert said.exit_code == 1
    assert "every finalist failed" in said.sentences[0]
    assert "trial 1 in round 1: network" in said.sentences[0]


def test_a_baseline_that_fails_twice_is_an_error_and_the_rounds_are_kept(
    study, tmp_path
):
    launcher = winning()
    launcher.outcomes[1] = [*noisy(0.1, 1.0)[:1], BROKEN]

    with pytest.raises(HostUnfit, match="baseline failed twice in round 2") as raised:
        confirmer(study, tmp_path, launcher).run()

    assert "network: no route to host" in str(raised.value)
    again = winning()
    said = confirmer(study, tmp_path, again).run()
    assert said.winner == 1
    assert len(again.order) == 8


def test_an_interrupted_confirmation_goes_on_with_the_round_it_was_in(study, tmp_path):
    launcher = winning()
    launcher.outcomes[4] = [launcher.outcomes[4][0], KeyboardInterrupt()]

    with pytest.raises(KeyboardInterrupt):
        confirmer(study, tmp_path, launcher).run()

    (kept,) = ConfirmationStore(study).of_study("s")
    assert kept.state == "running"
    again, noted = winning(), Noted()
    confirmer(study, tmp_path, again, progress=noted).run()
    assert [r.round_number for r in noted.runs] == [2] * 4 + [3] * 4
    (ended,) = ConfirmationStore(study).of_study("s")
    assert ended.state == "decided"


def test_what_was_cut_off_of_a_round_is_not_mixed_with_the_later_run(study, tmp_path):
    launcher = winning()
    order = []
    confirmer(study, tmp_path, replace(launcher, order=order)).run()
    last = order[3]
    launcher = winning()
    launcher.outcomes[last] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        confirmer(study, tmp_path, launcher).run(again=True)
    assert len(launcher.order) == 4

    again = winning()
    confirmer(study, tmp_path, again).run()

    assert len(again.order) == 12


def test_a_decided_confirmation_is_said_again_without_a_start(study, tmp_path):
    first = confirmer(study, tmp_path, winning()).run()
    launcher = winning()

    second = confirmer(study, tmp_path, launcher).run()

    assert second == first
    assert launcher.order == []


def test_another_machine_or_other_looks_begin_a_new_confirmation(study, tmp_path):
    confirmer(study, tmp_path, winning()).run()
    elsewhere, longer = winning(), winning()

    confirmer(study, tmp_path, elsewhere, machine={**MACHINE, "host": "there"}).run()
    confirmer(study, tmp_path, longer, rounds=4).run()

    assert len(elsewhere.order) == 12
    assert len(longer.order) == 16
    assert len(ConfirmationStore(study).of_study("s")) == 3


def test_confirmations_are_no_trials_and_every_request_is_kept(study, tmp_path):
    before = study.trials("s")

    confirmer(study, tmp_path, winning()).run()

    assert study.trials("s") == before
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'study.db'}")
    with engine.connect() as connection:
        query = (
            "select count(*) from autotune_requests r join autotune_blocks b on "
            "b.id = r.block_id join autotune_launches l on l.id = b.launch_id "
            "where l.state = 'confirmation'"
        )
        assert connection.execute(sa.text(query)).scalar() == 12 * 4
    engine.dispose()


def test_the_verdict_is_stored_with_scores_and_metrics_of_every_round(study, tmp_path):
    said = confirmer(study, tmp_path, winning()).run()

    kept = ConfirmationStore(study)
    (stored,) = kept.of_study("s")
    assert stored.sentence == said.sentences[0]
    verdict = json.loads(json.dumps(stored.verdicts))["baseline"]
    assert verdict["kind"] == "worth_it"
    assert verdict["winner"]["name"] == "trial 1"
    runs = kept.runs(stored.confirmation_id)
    assert len(runs) == 12
    assert set(runs[0].metrics) == {"p50 TTFT", "p95 TTFT", "TPOT", "throughput"}
    assert all(r.score > 0 for r in runs)


def test_a_study_that_another_process_works_on_is_left_alone(study, tmp_path):
    epoch = study.begin_epoch("s", MACHINE)
    study.begin_launch(
        "s", epoch=epoch, number=9, role="trial", settings=settings(9), changes={}
    )
    launcher = winning()

    with pytest.raises(InputError, match="another process"):
        confirmer(study, tmp_path, launcher).run()

    assert launcher.order == []


def test_what_runs_today_is_measured_beside_and_answered_first(study, tmp_path):
    launcher = winning()
    launcher.outcomes[8] = noisy(0.3, *BASE)

    said = confirmer(study, tmp_path, launcher, today=settings(8)).run()

    over_today, over_defaults = said.sentences
    assert "against what you run today, worth it" in over_today
    assert over_today.startswith("score \N{MINUS SIGN}77 %")
    assert "against vLLM's defaults, worth it" in over_defaults
    assert launcher.order.count(8) == 3
    assert (said.winner, said.exit_code) == (1, 0)


def test_where_no_trial_is_better_the_defaults_meet_what_runs_today(store, tmp_path):
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, number=0, knob=1, score=1.0, role="baseline")
    launcher = winning()
    launcher.outcomes[8] = noisy(0.3, *BASE)

    said = confirmer(store, tmp_path, launcher, today=settings(8)).run()

    assert said.settled["today"].winner.name == "defaults"
    assert sorted(set(launcher.order)) == [1, 8]


def test_the_real_launcher_carries_a_confirmation(store, tmp_path, monkeypatch):
    monkeypatch.setattr("autotune.launch.DIRECT_BOUNDS", LagBounds(1e9, 1e9))
    epoch = store.begin_epoch("s", MACHINE)
    add_trial(store, epoch, number=0, knob=1, score=1.0, role="baseline")
    add_trial(store, epoch, number=1, knob=2, score=0.5)
    slow, fast = Answers(ttft_s=0.030, itl_s=0.010), Answers(ttft_s=0.006, itl_s=0.001)
    engine = ScriptedEngine([Scene(fast, {"knob": 2}), Scene(slow)])
    launcher = Launcher(engine, (WORKLOAD,), 1000, lambda _: contextlib.nullcontext())

    said = confirmer(store, tmp_path, launcher, rounds=2).run()

    assert len(engine.started) == 4
    comparison = said.settled["baseline"].comparison
    assert comparison.candidates[0].effect.ratio < 0.8


@pytest.mark.parametrize("rounds", [-1, 0, 1, 13])
def test_a_number_of_rounds_that_decides_nothing_is_refused(rounds):
    with pytest.raises(InputError, match="from 2 to 12"):
        standard_plan(rounds)


@pytest.mark.parametrize(
    ("rounds", "looks"), [(None, (5, 8, 12)), (4, (4,)), (5, (5,)), (9, (5, 8, 9))]
)
def test_looks_are_the_standard_ones_up_to_the_last_round(rounds, looks):
    assert standard_plan(rounds).looks == looks


def test_the_line_run_today_is_read_over_what_the_study_holds():
    spec = {
        "fixed": {"enforce_eager": True, "max_num_seqs": 8},
        "environment": {"A": "1"},
    }

    line = parse_launch_line("B=2 vllm serve m --max-num-seqs 1")
    read = laid_over(line, "/models/m", spec)

    assert read.model == "/models/m"
    assert read.arguments == {"enforce_eager": True, "max_num_seqs": 1}
    assert read.environment == {"A": "1", "B": "2"}
    assert today_settings(None, "/models/m", spec) is None


@pytest.mark.parametrize("words", [["--rounds", "1"], ["--rounds", "99"]])
def test_the_command_refuses_rounds_before_it_looks_for_the_study(words, capsys):
    with pytest.raises(InputError, match="from 2 to 12"):
        app(["confirm", "--study", "none", *words], standalone_mode=False)


def test_the_command_names_a_study_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InputError, match="there is no study 'none'"):
        app(["confirm", "--study", "none"], standalone_mode=False)

    assert list(tmp_path.iterdir()) == []


def test_the_end_is_told_with_what_the_winner_changes(study, tmp_path):
    out = io.StringIO()
    terminal = Terminal(out, Console(file=out, width=200))
    said = confirmer(study, tmp_path, winning(), progress=Narrated(terminal)).run()

    say_confirmed(said, study.trials("s"), terminal)

    told = out.getvalue()
    assert "round 3, trial 1: score" in told
    assert said.sentences[0] in told
    assert "confirmed: trial 1: knob=2" in told
