"""The memory model against real starts of tiny models on a CPU: exact to the block."""

import json
from pathlib import Path

import pytest

from autotune.memory import Device, predict, read_shape


FACTS = json.loads(
    Path(__file__)
    .parents[1]
    .joinpath("data/memory/cpu_tiny_starts.json")
    .read_text(encoding="utf-8")
)
HOST = Device("cpu", 8 * 2**30)


def predicted(start):
    shape = read_shape(FACTS["configs"][start["model"]])
    return predict(shape, start["arguments"], HOST)


@pytest.mark.parametrize("start", FACTS["starts"], ids=lambda start: start["model"])
def test_a_start_has_exactly_the_foreseen_blocks_and_tokens(start):
    answer = predicted(start)

    assert answer.phase == start.get("failed_at")
    if answer.phase is None:
        foreseen = (answer.kv_blocks, answer.kv_tokens)
        assert foreseen == (start["kv_blocks"], start["kv_tokens"])


def test_the_table_holds_starts_of_both_kinds():
    failed = [start for start in FACTS["starts"] if start.get("failed_at")]

    assert len(failed) >= 2
    assert len(FACTS["starts"]) - len(failed) >= 10
