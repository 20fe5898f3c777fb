"""YAML and --fix in; knobs, or an error that names file, key and value, out."""

import pytest

from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob
from autotune.errors import InputError
from autotune.spec import (
    load_space,
    lossless,
    parse_fixes,
    space_names,
    with_fixes,
)


GOOD = """
name: mine
fixed: {enforce_eager: true}
environment: {VLLM_X: "1"}
knobs:
  seqs: {type: int, low: 1, high: 64, log: true}
  share: {type: float, low: 0.5, high: 0.9, step: 0.1}
  size: {type: choice, choices: [16, auto, null, true]}
  lossy: {type: choice, choices: [auto, fp8], affects_output: true}
  layout: {type: layout}
rules:
  - {left: seqs, relation: at_most, right: tokens, when: {chunked: false}}
"""


@pytest.fixture
def space_file(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_space_file_becomes_knobs_in_its_order(space_file):
    space = load_space(space_file(GOOD), device_count=2)

    assert space.knobs == (
        IntKnob("seqs", 1, 64, log=True),
        FloatKnob("share", 0.5, 0.9, step=0.1),
        ChoiceKnob("size", (16, "auto", None, True)),
        ChoiceKnob("lossy", ("auto", "fp8"), affects_output=True),
        ChoiceKnob("layout", ("tp2-pp1", "tp1-pp2")),
    )
    assert space.fixed == {"enforce_eager": True}
    assert space.environment == {"VLLM_X": "1"}
    assert space.rules[0].when == {"chunked": False}


@pytest.mark.parametrize("device_count", [0, 1])
def test_one_device_leaves_no_choice_of_layout(space_file, device_count):
    space = load_space(space_file(GOOD), device_count=device_count)

    assert space.knob("layout") is None


def test_lossy_knobs_can_be_left_out(space_file):
    space = lossless(load_space(space_file(GOOD), device_count=1))

    assert [k.name for k in space.knobs] == ["seqs", "share", "size"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("low: 1,", "low: 99,"), ["seqs", "low (99) must be below high (64)"]),
        (("low: 1,", "low: x,"), ["seqs", "low", "got x"]),
        (("low: 1,", "low: 0,"), ["seqs", "log knob needs low >= 1"]),
        (("low: 1,", "lo: 1,"), ["seqs", "lo"]),
        (("type: int", "type: whole"), ["seqs", "whole"]),
        (("low: 0.5", "low: .nan"), ["share", "finite", "got nan"]),
        (("high: 0.9", "high: .inf"), ["share", "finite", "got inf"]),
        (("step: 0.1", "step: 0"), ["share", "step", "got 0"]),
        (("[16, auto, null, true]", "[]"), ["size", "choices", "got []"]),
        (("[16, auto, null, true]", "[16, 16]"), ["size", "stands twice"]),
        (("at_most", "below"), ["rules.0.relation", "got below"]),
        (("name: mine", "title: mine"), ["name", "(and 1 more)"]),
        (("enforce_eager: true", "seqs: 4"), ["both fixed and a knob: seqs"]),
        (("enforce_eager: true", "enforce_eager: [1]"), ["fixed.enforce_eager"]),
        (('VLLM_X: "1"', "VLLM_X: 1"), ["environment.VLLM_X", "got 1"]),
        (('VLLM_X: "1"', '"X; rm": "1"'), ["environment", "X; rm"]),
        (("  size:", "  seqs: {type: layout}\n  size:"), ["seqs stands twice"]),
        (("name: mine", "name: [mine"), ["not readable YAML"]),
        (("name: mine", "name: 2024-13-45"), ["not readable YAML", "month"]),
        (("name: mine", "name: !!python/object:os.system x"), ["not readable"]),
    ],
)
def test_a_malformed_file_is_named_with_its_key_and_value(space_file, change, words):
    assert change[0] in GOOD
    path = space_file(GOOD.replace(*change, 1))

    with pytest.raises(InputError) as raised:
        load_space(path, device_count=1)

    assert all(word in str(raised.value) for word in [path, *words]), raised.value


@pytest.mark.parametrize("text", ["", "[]", "just words", "3"])
def test_a_file_that_is_no_mapping_is_refused(space_file, text):
    with pytest.raises(InputError, match="the file: "):
        load_space(space_file(text), device_count=1)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(InputError, match="not readable YAML"):
        load_space(str(path), device_count=1)


@pytest.mark.parametrize("name", ["nosuch", "", "no/such", "nosuch.yaml"])
def test_an_unknown_space_is_refused(name):
    with pytest.raises(InputError, match=r"no (space of that name|such file)"):
        load_space(name, device_count=1)


def test_the_shipped_spaces_load_by_name():
    assert set(space_names()) >= {"cpu", "default", "glm-4-9b-chat"}
    for name in space_names():
        assert load_space(name, device_count=8).knobs


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("a=1", 1),
        ("a=0.5", 0.5),
        ("a=true", True),
        ("a=null", None),
        ("a=auto", "auto"),
        ("a=x=y", "x=y"),
        ('a="1"', "1"),
    ],
)
def test_yaml_decides_the_type_of_a_fixed_value(pair, value):
    fixes = parse_fixes((pair,))

    assert fixes == {"a": value}
    assert type(fixes["a"]) is type(value)


@pytest.mark.parametrize(
    "pair", ["a", "=1", "a=", "", "a=[1]", "a={b: 1}", "a=2024-01-01", "a=2024-13-45"]
)
def test_a_fix_that_is_no_pair_of_name_and_scalar_is_refused(pair):
    with pytest.raises(InputError, match="--fix"):
        parse_fixes((pair,))


def test_a_knob_fixed_twice_is_refused_even_with_one_value():
    with pytest.raises(InputError, match=r"--fix a is given twice \(1 and 2\)"):
        parse_fixes(("a=1", "a=2"))
    with pytest.raises(InputError, match="twice"):
        parse_fixes(("a=1", "a=1"))


def test_a_nested_fix_beside_its_whole_is_refused():
    with pytest.raises(InputError, match=r"--fix c\.mode contradicts --fix c"):
        parse_fixes(("c.mode=3", "c=3"))


def test_a_fixed_knob_is_no_longer_turned(space_file):
    space = with_fixes(load_space(space_file(GOOD), device_count=2), {"seqs": 1000})

    assert space.knob("seqs") is None
    assert space.fixed == {"enforce_eager": True, "seqs": 1000}


@pytest.mark.parametrize("size", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_a_fixed_parallel_size_also_fixes_the_layout(space_file, size):
    space = with_fixes(load_space(space_file(GOOD), device_count=2), {size: 2})

    assert space.knob("layout") is None


def test_fixes_that_no_knob_could_reconcile_are_refused(space_file):
    space = load_space(space_file(GOOD), device_count=1)

    with pytest.raises(InputError, match="seqs must be at most tokens, got seqs=9"):
        with_fixes(space, {"seqs": 9, "tokens": 8, "chunked": False})
    assert with_fixes(space, {"seqs": 9, "tokens": 8, "chunked": True})
    assert with_fixes(space, {"seqs": 9, "tokens": 8})
