"""Event streams are cut and read rightly, however their bytes arrive."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load import sse
from autotune.load.sse import Delta, SseEvent, SseParser, Usage, read_delta


def datas(*pieces: bytes) -> list[bytes]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return [event.data for event in [*events, *parser.close()]]


def delta_of(payload: object, *, name: bytes = b"") -> Delta:
    return read_delta(SseEvent(name, json.dumps(payload).encode()))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_of_the_standard_is_understood(end):
    stream = end.join([b"data: one", b"", b"data: two", b"", b""])

    assert datas(stream) == [b"one", b"two"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_bytes_arriving_one_by_one_give_the_same_events(end):
    text = "data: größer 日本".encode()
    stream = end.join([b": ping", text, b"data: b", b"", b"data:c", b"", b""])

    assert datas(*(bytes([b]) for b in stream)) == [text[6:] + b"\nb", b"c"]


def test_a_crlf_split_between_reads_is_one_line_end():
    assert datas(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_comments_and_unknown_fields_are_no_events():
    assert datas(b": keep-alive\n\nid: 7\nretry: 10\n\n:\n\n") == []


def test_a_last_event_without_its_empty_line_is_not_lost():
    assert datas(b"data: [DONE]") == [b"[DONE]"]


def test_the_name_of_an_event_belongs_to_that_event_only():
    events = SseParser().feed(b"event: error\ndata: {}\n\ndata: {}\n\n")

    assert [event.name for event in events] == [b"error", b""]


def test_a_line_without_end_is_refused_before_it_eats_the_memory(monkeypatch):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)

    with pytest.raises(ValueError, match="exceeds"):
        SseParser().feed(b"data: " + b"x" * 200)
    with pytest.raises(ValueError, match="exceeds"):
        SseParser().feed(b"data: xxxxxxxxxx\n" * 20)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_how_a_stream_is_split_never_changes_its_events(stream, cuts):
    edges = sorted({0, len(stream), *(c for c in cuts if c <= len(stream))})
    pieces = [stream[a:b] for a, b in pairwise(edges)]

    assert datas(*pieces) == datas(stream)


@given(st.binary(max_size=300), st.binary(max_size=10))
def test_any_bytes_as_an_event_are_read_without_raising(data, name):
    assert isinstance(read_delta(SseEvent(name, data)), Delta)


JSON_KEYS = [
    "choices",
    "delta",
    "text",
    "content",
    "usage",
    "error",
    "token_ids",
    "tool_calls",
    "function",
    "arguments",
    "completion_tokens",
    "prompt_tokens_details",
    "finish_reason",
    "message",
    "object",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(JSON_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_json_as_an_event_is_read_without_raising(payload):
    assert isinstance(delta_of(payload), Delta)


def test_nesting_deeper_than_the_stack_is_an_error_and_no_crash():
    assert "not JSON" in (read_delta(SseEvent(b"", b"[" * 100_000)).error or "")


@pytest.mark.parametrize(
    "choice",
    [
        {"text": "a"},
        {"delta": {"content": "a"}},
        {"delta": {"content": None, "reasoning": "a"}},
        {"delta": {"content": "", "reasoning_content": "a"}},
        {"delta": {"refusal": "a"}},
        {"delta": {"tool_calls": [{"function": {"name": "a"}}]}},
        {"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}},
        {"delta": {"function_call": {"arguments": "{"}}},
        {"message": {"content": "a"}},
    ],
)
def test_text_reasoning_and_tool_calls_all_are_output(choice):
    assert delta_of({"choices": [choice]}).has_output


@pytest.mark.parametrize(
    "choice",
    [
        {"text": ""},
        {"delta": {"role": "assistant"}},
        {"delta": {"role": "assistant", "content": ""}},
        {"delta": {"content": None}},
        {"delta": {"tool_calls": []}},
        {"delta": {"tool_calls": [{"function": {"arguments": ""}}]}},
        {"delta": None, "finish_reason": "stop"},
    ],
)
def test_roles_and_empty_pieces_are_no_output(choice):
    delta = delta_of({"choices": [choice]})

    assert delta.has_choices
    assert not delta.has_output


def test_usage_is_read_with_its_cached_tokens():
    details = {"cached_tokens": 4}
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": details,
    }

    delta = delta_of({"choices": [], "usage": usage})

    assert delta.usage == Usage(9, 3, 4)
    assert not delta.has_choices


def test_counts_that_are_no_counts_are_unknown_and_not_zero():
    usage = {"prompt_tokens": True, "completion_tokens": -1}

    assert delta_of({"usage": usage}).usage == Usage(None, None, None)


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ({"error": {"message": "boom", "code": 500}}, b""),
        ({"error": "boom"}, b""),
        ({"object": "error", "message": "boom"}, b""),
        ({"message": "boom"}, b"error"),
    ],
)
def test_an_error_inside_the_stream_is_found_in_each_of_its_shapes(payload, name):
    assert delta_of(payload, name=name).error == "boom"
