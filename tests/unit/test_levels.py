"""A level goes on until its figures are narrow or a cap is reached, and says which."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from scipy import stats

from autotune.domain.request import Chunk
from autotune.domain.timing import Block, LevelResult, RequestTiming
from autotune.domain.workload import ClosedLoop, OpenLoop, Workload
from autotune.errors import AutotuneError, EngineDied
from autotune.load.lag import LagBounds
from autotune.load.levels import MOST_REPEATS, Caps, Found, Ruler, Watched
from autotune.load.precision import half_widths, relative_half_width, t_quantile


LEVEL = ClosedLoop(2)
WORKLOAD = Workload("w", 4, 3, requests=4, blocks=2, levels=(LEVEL,), most_blocks=6)
ANYTHING = LagBounds(1e9, 1e9)


class Target:
    """Answers as planned; the n-th block is slower by the n-th of ``slower_s``."""

    def __init__(self, slower_s=(), *, resets=True, dies_in_block=None):
        self.slower_s = slower_s
        self.resets = resets
        self.dies_in_block = dies_in_block
        self.block = -2  # the first reset begins the warm-up

    async def stream(self, request):
        if self.block == self.dies_in_block:
            raise EngineDied("gone")
        more_s = dict(enumerate(self.slower_s)).get(self.block, 0.0)
        await asyncio.sleep(0.002 + more_s)
        for _ in range(request.output_tokens):
            yield Chunk(time.perf_counter(), 1, len(request.prompt_token_ids), 0)
            await asyncio.sleep(0.001)

    async def reset_caches(self):
        self.block += 1
        return self.resets


class Watch:
    """Voids the blocks of the indices given, in order of running."""

    def __init__(self, void=()):
        self.void = set(void)
        self.count = -2

    def begin(self):
        self.count += 1

    def end(self):
        reason = "disturbed" if self.count in self.void else None
        return Watched({"seen": float(self.count)}, reason)


def measure(target=None, *, workload=WORKLOAD, watch=None, caps=None, **options):
    kept, found = [], Found({})
    ruler = Ruler(
        target=target or Target(),
        vocabulary=1000,
        keep=kept.append,
        enter=lambda _: None,
        watch=watch or Watch(),
        bounds=ANYTHING,
        caps=caps or Caps(half_width=1e9),
        **options,
    )
    try:
        asyncio.run(ruler.measure_all((workload,), found))
    except AutotuneError as error:
        return found, kept, error
    return found, kept, None


def test_narrow_figures_end_a_level_but_not_before_three_blocks():
    found, _, _ = measure()

    (level,) = found.levels
    assert level.ended == "narrow"
    assert [b.index for b in level.blocks] == [0, 1, 2]


def test_wide_figures_go_on_to_the_most_blocks():
    found, _, _ = measure(caps=Caps(half_width=1e-9))

    (level,) = found.levels
    assert level.ended == "most_blocks"
    assert len(level.blocks) == 6


def test_without_more_blocks_allowed_a_level_has_exactly_its_own():
    found, _, _ = measure(workload=replace(WORKLOAD, most_blocks=0))

    (level,) = found.levels
    assert (level.ended, len(level.blocks)) == ("most_blocks", 2)


@pytest.mark.parametrize(
    ("caps", "ended", "blocks"),
    [
        (Caps(half_width=1e-9, most_s=0.0), "most_seconds", 1),
        (Caps(half_width=1e-9, most_requests=8), "most_requests", 2),
    ],
)
def test_caps_on_seconds_and_requests_hold_and_are_named(caps, ended, blocks):
    found, _, _ = measure(caps=caps)

    (level,) = found.levels
    assert (level.ended, len(level.blocks)) == (ended, blocks)


def test_how_narrow_a_level_is_known_is_kept_with_each_block():
    found, _, _ = measure(Target((0.0, 0.05, 0.1)), caps=Caps(half_width=1e-9))

    blocks = found.levels[0].blocks
    assert blocks[0].counters["ttft_p95_half_width"] is None
    for count in (2, 3, 6):
        widths = half_widths(blocks[:count])
        counters = blocks[count - 1].counters
        assert counters["ttft_p95_half_width"] == widths.ttft_p95 > 0
        assert counters["tpot_mean_half_width"] == widths.tpot_mean


def test_a_void_block_is_measured_again_with_the_same_requests():
    found, _, _ = measure(watch=Watch(void={1}))

    blocks = found.levels[0].blocks
    assert [(b.index, b.void) for b in blocks] == [
        (0, None),
        (1, "disturbed"),
        (1, None),
        (2, None),
    ]
    first, second = ([t.request_id for t in b.timings] for b in blocks[1:3])
    assert first == second


def test_a_level_of_void_blocks_gives_up_each_in_turn_and_ends():
    found, _, _ = measure(watch=Watch(void=range(100)))

    (level,) = found.levels
    assert level.ended == "most_blocks"
    assert len(level.blocks) == 6 * (1 + MOST_REPEATS)
    assert level.timings == ()


def test_the_watch_looks_around_every_block_and_what_it_saw_is_kept():
    _, kept, _ = measure()

    assert [b.counters["seen"] for b in kept] == [-1, 0, 1, 2]
    assert all(b.counters["caches_reset"] == 1 for b in kept)


def test_caches_are_reset_before_each_block_or_the_target_is_refused():
    target = Target()
    _, kept, error = measure(target)
    assert error is None
    assert target.block + 2 == len(kept)

    found, kept, error = measure(Target(resets=False))

    assert "could not forget" in str(error)
    assert kept == []
    assert found.levels[0].blocks == ()


def test_a_target_that_need_not_forget_is_measured_and_that_is_kept():
    _, kept, error = measure(Target(resets=False), must_reset=False)

    assert error is None
    assert all(b.counters["caches_reset"] == 0 for b in kept)


def test_a_level_cut_short_keeps_its_blocks_and_has_no_ending():
    found, kept, error = measure(Target(dies_in_block=1))

    assert isinstance(error, EngineDied)
    (level,) = found.levels
    assert level.ended is None
    assert len(level.blocks) == 1
    assert kept[-1].void == "EngineDied: gone"


def test_blocks_have_fresh_text_and_the_same_requests_in_every_trial():
    def seen():
        prompts = []

        class Noting(Target):
            async def stream(self, request):
                prompts.append((request.request_id, request.prompt_token_ids))
                async for chunk in Target.stream(self, request):
                    yield chunk

        measure(Noting())
        return sorted(prompts)

    first, second = seen(), seen()

    assert first == second
    assert len({ids for _, ids in first}) == len(first)


def test_an_open_loop_past_capacity_ends_its_level_at_once(monkeypatch):
    monkeypatch.setattr("autotune.load.levels.sustained_rps", lambda *_, **__: 3.0)
    level = OpenLoop(500.0)

    found, _, _ = measure(workload=replace(WORKLOAD, levels=(level, level)))

    assert [r.ended for r in found.levels] == ["saturated"]
    assert found.sustained_rps == 3.0


def block(*ttfts_s, void=None, tokens=3):
    timings = tuple(
        RequestTiming(
            f"r{i}", "w", "l", 0, 0, 0.0, 0.0, s, s + 0.2, (), 4, tokens, None, None
        )
        for i, s in enumerate(ttfts_s)
    )
    return Block("w", "l", 0, datetime.now(UTC), 1.0, timings, void=void)


def test_intervals_are_over_blocks_and_void_ones_say_nothing():
    widths = half_widths([block(1.0), block(1.2), block(9.0, void="x"), block(1.1)])

    expected = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5 / 1.1
    assert widths.ttft_p95 == pytest.approx(expected, rel=1e-3)
    assert widths.tpot_mean == pytest.approx(0.0, abs=1e-9)


def test_one_token_answers_leave_tpot_out_of_the_question():
    widths = half_widths([block(1.0, tokens=1), block(1.0, tokens=1)])

    assert widths.tpot_mean is None
    assert widths.within(0.01)


def test_one_block_is_never_narrow():
    assert not half_widths([block(1.0, 1.1)]).within(1e9)


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 11, 15, 29, 200])
def test_students_quantiles_are_right(freedom):
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=3e-3)


def test_a_mean_of_zero_with_spread_is_known_to_no_share_of_itself():
    assert relative_half_width([-1.0, 1.0]) == float("inf")
    assert relative_half_width([0.0, 0.0]) == 0.0


def test_a_level_without_blocks_has_no_ending():
    assert LevelResult("w", "l", ()).ended is None
