"""One layout knob stands for two engine arguments."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.layout import LAYOUT, collapse, expand, layouts


@given(st.integers(1, 64))
def test_every_layout_uses_all_devices_and_stands_once(device_count):
    found = layouts(device_count)

    sizes = [[int(n) for n in re.findall(r"\d+", name)] for name in found]
    assert all(math.prod(pair) == device_count for pair in sizes)
    assert len(set(found)) == len(found)
    assert found[0] == f"tp{device_count}-pp1"
    assert found[-1] == f"tp1-pp{device_count}"


@given(st.integers(1, 64), st.data())
def test_a_layout_comes_back_from_its_two_sizes(device_count, data):
    layout = data.draw(st.sampled_from(layouts(device_count)))

    assert collapse(expand({LAYOUT: layout})) == {LAYOUT: layout}


def test_other_knobs_pass_through_and_the_layout_itself_does_not():
    expanded = expand({LAYOUT: "tp2-pp4", "max_num_seqs": 8})

    assert expanded == {
        "max_num_seqs": 8,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 4,
    }


def test_without_both_sizes_no_layout_is_claimed():
    assert collapse({"tensor_parallel_size": 2}) == {}
    assert collapse({"tensor_parallel_size": 2, "pipeline_parallel_size": None}) == {}


@pytest.mark.parametrize("layout", ["tp2", "tp2-pp", "2x1", "tp2-pp1 ", None, ""])
def test_a_layout_written_otherwise_is_refused(layout):
    with pytest.raises(ValueError, match="tpN-ppM"):
        expand({LAYOUT: layout})
