"""Every public format is read with its oddities; whatever the bytes, readers count.

The samples are made here, after the formats' descriptions; no data is copied.
"""

import gzip
import io
import json
import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.load.traces import (
    Oddities,
    azure,
    burstgpt,
    elements,
    lines,
    mooncake,
    own,
    sharegpt,
)
from autotune.load.traces.files import FORMATS, open_trace
from autotune.load.traces.seen import Seen


def azure_2023(rows=50):
    """CRLF everywhere, seven digits, no newline at the end."""
    draw = random.Random(1)
    made = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for i in range(rows):
        digits = f"{draw.randrange(10**7):07d}"
        length, output = draw.randint(3, 7437), draw.randint(6, 1899)
        made.append(f"2023-11-16 18:17:{i % 60:02d}.{digits},{length},{output}")
    return "\r\n".join(made).encode()


def azure_2024():
    """A time zone, six digits or none, LF."""
    return (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
        b"2024-05-10 00:00:00.009930+00:00,2162,5\n"
        b"2024-05-10 00:00:01+00:00,2399,6\n"
        b"2024-05-10 00:00:01+00:00,76,15\n"
    )


def burstgpt_old():
    return (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,472,18,490,Conversation log\n"
        b"45,ChatGPT,1087,0,1087,Conversation log\n"
        b"118,GPT-4,417,276,693,API log\n"
    )


def burstgpt_new():
    return (
        b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,"
        b"Total tokens,Log Type\r\n"
        b"5.0,1,99.5,ChatGPT,472,18,490,Conversation log\r\n"
        b'45.0,,,"ChatGPT",1087,0,1087,"Conversation log"\r\n'
        b"118.0,3,2.1,GPT-4,417,276,693,API log"
    )


def mooncake_rows():
    """Times repeat in steps of three seconds; a one-token answer; a shared start."""
    return [
        {
            "timestamp": 0,
            "input_length": 1100,
            "output_length": 52,
            "hash_ids": [0, 1, 2],
        },
        {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [0, 3]},
        {
            "timestamp": 3000,
            "input_length": 1540,
            "output_length": 9,
            "hash_ids": [0, 1, 4, 5],
        },
    ]


def json_lines(rows):
    return "\n".join(map(json.dumps, rows)).encode()


def talk(*turns, speakers=("human", "gpt")):
    said = [{"from": speakers[i % 2], "value": text} for i, text in enumerate(turns)]
    return {"id": "made", "conversations": said}


QUESTION, ANSWER = "What is the capital of it? ", "The capital of it is a town. "


def sharegpt_rows():
    return [
        talk(QUESTION, ANSWER),
        talk(QUESTION),
        talk("", ANSWER),
        talk("", ANSWER, QUESTION, ANSWER),
        talk(ANSWER, QUESTION, ANSWER, speakers=("gpt", "human")),
        talk("Hi", ANSWER),
        {"id": "none"},
        "text",
        talk(QUESTION, ANSWER, QUESTION, ANSWER),
    ]


def own_rows():
    return [
        {"arrival_s": 0.5, "prompt": "x" * 40, "output_tokens": 7},
        {"arrival_s": 0.6, "prompt_token_ids": [5, 6, 7], "output_tokens": 2},
        {"arrival_s": 0.7, "segments": [["s", 8], ["a", 4]], "output_tokens": 2},
        {"arrival_s": 0.8, "segments": [["s", 8], ["b", 4]], "output_tokens": 2},
        {"arrival_s": 0.9, "prompt_tokens": 12, "output_tokens": 2, "colour": "red"},
        {
            "arrival_s": 1,
            "messages": [{"role": "user", "content": "y" * 8}],
            "output_tokens": 3,
        },
    ]


SAMPLES = {
    "azure": azure_2023(),
    "burstgpt": burstgpt_new(),
    "mooncake": json_lines(mooncake_rows()),
    "sharegpt": json.dumps(sharegpt_rows()).encode(),
    "own": json_lines(own_rows()),
}


def read(reader, content, encode=None):
    odd = Oddities()
    batches = list(reader.read(io.BytesIO(content), odd, encode))
    return (
        [
            (p, o)
            for b in batches
            for p, o in zip(b.prompt_tokens, b.output_tokens, strict=True)
        ],
        odd,
        batches,
    )


def column(batches, name):
    return [entry for batch in batches for entry in getattr(batch, name)]


def shapes(content, tmp_path, name="trace"):
    path = tmp_path / name
    path.write_bytes(content)
    odd = Oddities()
    return list(open_trace(path).shapes(odd)), odd


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_recognised_by_its_beginning(name, tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(SAMPLES[name])

    assert open_trace(path).format.name == name


@pytest.mark.parametrize("name", SAMPLES)
def test_gzip_a_bom_and_crlf_change_nothing(name, tmp_path):
    plain, _ = shapes(SAMPLES[name], tmp_path)
    crlf = SAMPLES[name].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

    for content in (
        gzip.compress(SAMPLES[name]),
        b"\xef\xbb\xbf" + SAMPLES[name],
        crlf,
        gzip.compress(b"\xef\xbb\xbf" + crlf),
    ):
        assert shapes(content, tmp_path, "other")[0] == plain
    assert plain


def test_azure_of_2023_keeps_all_digits_and_the_last_row(tmp_path):
    found, odd = shapes(azure_2023(), tmp_path)

    assert len(found) == 50
    assert found[0].arrival_s == 0.0
    assert not odd.skipped
    last = azure_2023().rsplit(b",", 2)
    assert (found[-1].prompt_tokens, found[-1].output_tokens) == (
        int(last[1]),
        int(last[2]),
    )


def test_azure_of_2024_has_a_zone_and_seconds_without_a_fraction(tmp_path):
    found, _ = shapes(azure_2024(), tmp_path)

    assert [s.arrival_s for s in found] == pytest.approx([0.0, 0.99007, 0.99007])


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("2023-11-16 18:17:03.9799600", 3.97996),
        ("2023-11-16T18:17:03", 3.0),
        ("2023-11-16 18:17:03.5Z", 3.5),
        ("2023-11-16 19:17:03.5+01:00", 3.5),
        ("2023-11-16 13:17:03.5-0500", 3.5),
    ],
)
def test_a_moment_is_read_to_any_digit_and_zone(text, after_s):
    start_s = azure.moment_s("2023-11-16 18:17:00")

    assert azure.moment_s(text) - start_s == pytest.approx(after_s, abs=1e-6)
    assert azure.moments_s([text, text])[1] == pytest.approx(azure.moment_s(text))


def test_moments_of_mixed_zones_are_not_taken_for_the_first_ones(tmp_path):
    mixed = ["2024-05-10 00:00:01.5+00:00", "2024-05-10 00:00:01.5-05:00"]

    first, second = azure.moments_s(mixed)

    assert second - first == 5 * 3600


@pytest.mark.parametrize("content", [burstgpt_old(), burstgpt_new()])
def test_burstgpt_without_an_answer_is_a_failed_request(content):
    found, odd, batches = read(burstgpt, content)

    assert found == [(472, 18), (417, 276)]
    assert list(odd.skipped.values()) == [1]
    assert odd.first_rows == {next(iter(odd.skipped)): 3}
    assert column(batches, "times_s") == [5.0, 118.0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("", "blank line"),
        ("118,ChatGPT", "too few fields"),
        ("118,ChatGPT,x,5,5,log", "length is not a whole number"),
        ("118,ChatGPT,1.5,5,5,log", "length is not a whole number"),
        ("soon,ChatGPT,5,5,5,log", "unreadable time"),
        ("nan,ChatGPT,5,5,5,log", "unreadable time"),
        ("118,ChatGPT,0,5,5,log", "prompt of no tokens"),
        ("118,ChatGPT,-7,5,5,log", "prompt of no tokens"),
        ("118,ChatGPT,999999999999,5,5,log", "a length beyond 100 million tokens"),
        ('118,"ChatGPT,5,5', "too few fields"),
        (burstgpt_old().split(b"\n")[0].decode(), "header again"),
    ],
)
def test_an_odd_row_of_a_table_is_counted_and_the_others_are_kept(row, reason):
    good = "7,ChatGPT,472,18,490,Conversation log"
    head = burstgpt_old().split(b"\n")[0].decode()
    content = f"\n{head}\n{good}\n{row}\n{good}".encode()

    found, odd, _ = read(burstgpt, content)

    assert found == [(472, 18)] * 2
    assert odd.skipped[reason] >= 1
    assert odd.first_rows[reason] == (1 if reason == "blank line" else 4)


def test_lengths_written_with_a_fraction_of_zero_are_whole():
    content = burstgpt_old().replace(b"472", b"472.0")

    assert read(burstgpt, content)[0][0] == (472, 18)


def test_a_table_without_a_needed_column_is_refused_by_its_name():
    with pytest.raises(InputError, match="'Response tokens'"):
        read(burstgpt, b"Timestamp,Request tokens\n1,2\n")


def test_mooncake_blocks_tell_what_prompts_share():
    found, odd, batches = read(mooncake, json_lines(mooncake_rows()))

    assert found == [(1100, 52), (1024, 1), (1540, 9)]
    assert column(batches, "times_s") == [0.0, 0.0, 3.0]
    assert column(batches, "shared_tokens") == [0, 512, 1024]
    assert not odd.skipped
    first = batches[0].shape(0, number=0, origin_s=0.0)
    assert [(s.key, s.token_count) for s in first.segments] == [
        ("block0", 512),
        ("block1", 512),
        ("block2", 76),
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"timestamp": None}, mooncake.NO_TIME),
        ({"timestamp": True}, mooncake.NO_TIME),
        ({"input_length": "many"}, mooncake.NO_LENGTH),
        ({"output_length": 0}, "no generated tokens (a failed request)"),
        ({"input_length": 0, "hash_ids": []}, "prompt of no tokens"),
        ({"hash_ids": "0,1"}, mooncake.BAD_BLOCKS),
        ({"hash_ids": [0.5]}, mooncake.BAD_BLOCKS),
    ],
)
def test_an_odd_row_of_mooncake_is_counted_and_the_others_are_kept(change, reason):
    good = mooncake_rows()
    content = json_lines([good[0], {**good[1], **change}, good[2]])

    found, odd, _ = read(mooncake, content)

    assert found == [(1100, 52), (1540, 9)]
    assert dict(odd.skipped) == {reason: 1}
    assert odd.first_rows == {reason: 2}


@pytest.mark.parametrize("ids", [[0], [0, 1, 2, 3, 4], []])
def test_hash_ids_that_do_not_cover_the_prompt_are_noted_and_lengths_kept(ids):
    row = {**mooncake_rows()[0], "hash_ids": ids}

    found, odd, (batch,) = read(mooncake, json_lines([row]))

    assert found == [(1100, 52)]
    assert dict(odd.noted) == {mooncake.OTHER_COUNT: 1}
    assert batch.shape(0, number=0, origin_s=0.0).prompt_tokens == 1100


def test_lines_that_are_no_objects_are_counted():
    good = json.dumps(mooncake_rows()[0])
    content = "\n".join((good, "", "[1]", '{"timestamp": 1', "[" * 100_000, good))

    found, odd, _ = read(mooncake, content.encode())

    assert len(found) == 2
    assert dict(odd.skipped) == {"blank line": 1, "not a JSON object": 1, "not JSON": 2}


def test_every_answer_of_a_conversation_makes_a_request_and_odd_ones_are_counted():
    found, odd, (batch,) = read(sharegpt, SAMPLES["sharegpt"])

    q, a = -(-len(QUESTION) // 4), -(-len(ANSWER) // 4)
    assert found == [(q, a), (q, a), (q, a), (q, a), (q + a + q, a)]
    assert batch.shared_tokens == [0, 0, 0, 0, q]
    assert odd.skipped == {
        sharegpt.TOO_FEW_TURNS: 1,
        sharegpt.NO_ANSWER: 1,
        sharegpt.TOO_SHORT: 1,
        sharegpt.NO_TURNS: 1,
        "not a JSON object": 1,
    }
    assert odd.noted == {sharegpt.EMPTY_TURN: 2, sharegpt.ANSWER_FIRST: 3}


def test_conversations_one_a_line_are_the_same_as_in_a_list():
    rows = [r for r in sharegpt_rows() if isinstance(r, dict)]
    as_lines = io.BufferedReader(io.BytesIO(json_lines(rows)))
    odd = Oddities()

    batches = list(sharegpt.read(as_lines, odd))

    assert [len(b) for b in batches] == [5]


def test_an_encoder_turns_text_into_tokens_that_are_sent_as_they_are():
    found, _, (batch,) = read(
        sharegpt, SAMPLES["sharegpt"], lambda text: [9] * len(text)
    )

    assert found[0] == (len(QUESTION), len(ANSWER))
    assert batch.segments[0][0].token_ids == (9,) * len(QUESTION)


def test_a_list_that_breaks_off_gives_what_it_has():
    whole = json.dumps([talk(QUESTION, ANSWER)] * 3).encode()

    found, odd, _ = read(sharegpt, whole[:-40])

    assert len(found) == 2
    assert dict(odd.skipped) == {elements.CUT_OFF: 1}


def test_a_list_broken_in_its_middle_is_refused_with_the_place():
    whole = json.dumps([talk(QUESTION, ANSWER)] * 3)
    broken = whole.replace('"id"', '"id" oh', 1)

    with pytest.raises(InputError, match="at character 8"):
        read(sharegpt, broken.encode())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_list_is_read_the_same_whatever_the_chunks(size, monkeypatch):
    value = [{"a": "é\\u00e9\u20ac", "b": [1, -2.5e3, None, True]}, "x,]", 1234, {}, []]
    content = json.dumps(value, ensure_ascii=False, indent=1).encode()
    monkeypatch.setattr(elements, "CHUNK_BYTES", size)

    found = [v for _, v in elements.read_elements(io.BytesIO(content), Oddities())]

    assert found == value


def test_our_own_format_reads_every_way_to_say_a_prompt():
    found, odd, batches = read(own, SAMPLES["own"])

    assert found == [(10, 7), (3, 2), (12, 2), (12, 2), (12, 2), (2, 3)]
    assert column(batches, "shared_tokens") == [0, 0, 0, 8, 0, 0]
    assert column(batches, "segments")[1][0].token_ids == (5, 6, 7)
    assert not odd.skipped


@pytest.mark.parametrize(
    "row",
    [
        {"output_tokens": 5},
        {"prompt": "", "output_tokens": 5},
        {"prompt": 7, "output_tokens": 5},
        {"prompt_token_ids": [-1], "output_tokens": 5},
        {"prompt_token_ids": [], "output_tokens": 5},
        {"segments": [["a"]], "output_tokens": 5},
        {"segments": [["a", 0]], "output_tokens": 5},
        {"messages": [1], "output_tokens": 5},
        {"prompt": "words", "output_tokens": "few"},
        {"prompt": "words", "output_tokens": 0},
        {"prompt": "words", "output_tokens": 5, "arrival_s": "late"},
        {"prompt": "words", "output_tokens": 5},
    ],
)
def test_an_odd_row_of_our_own_format_is_counted(row):
    found, odd, _ = read(own, json_lines([own_rows()[0], row]))

    assert len(found) == 1
    assert sum(odd.skipped.values()) == 1


def test_a_request_written_in_our_own_format_reads_back_as_it_was(tmp_path):
    for name in ("mooncake", "sharegpt", "own"):
        before, _ = shapes(SAMPLES[name], tmp_path)
        content = "\n".join(map(own.line_of, before)).encode()

        after, odd = shapes(content, tmp_path, "again")

        assert not odd.skipped
        assert list(map(sizes, after)) == list(map(sizes, before))


def sizes(shape):
    time_s = shape.arrival_s
    return (
        shape.prompt_tokens,
        shape.output_tokens,
        None if time_s is None else round(time_s, 6),
    )


def test_a_line_that_is_too_long_is_skipped_and_the_next_is_read(monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", 64)
    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 100)
    for length in (101, 150, 163, 164, 165, 1000):
        for before in (b"", b"short\n"):
            odd = Oddities()
            content = before + b"x" * length + b"\nafter\nlast"

            batches = list(lines.read_lines(io.BytesIO(content), odd))

            kept = [line for b in batches for line in b.lines]
            assert kept == [*before.decode().split(), "after", "last"]
            assert dict(odd.skipped) == {lines.TOO_LONG: 1}
            assert batches[-1].first_row + len(batches[-1].lines) == 4 + bool(before)


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_lines_are_the_same_whatever_the_chunks(size, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", size)
    content = "a\r\n\r\né\u2028b\n\nlast".encode()

    batches = list(lines.read_lines(io.BytesIO(content), Oddities()))

    assert [x for b in batches for x in b.lines] == ["a", "", "é\u2028b", "", "last"]
    assert [b.first_row for b in batches] == sorted(b.first_row for b in batches)


class _Long:
    """A file of a head and a piece again and again, that is never there as a whole."""

    def __init__(self, head, piece, size):
        self._head, self._piece, self._at, self._left = head, piece, 0, size

    def read(self, size):
        if self._head:
            head, self._head = self._head, b""
            return head
        size = min(size, self._left)
        start = self._at % len(self._piece)
        self._at += size
        self._left -= size
        return (self._piece * (size // len(self._piece) + 2))[start : start + size]


@pytest.mark.parametrize(
    ("reader", "head", "piece"),
    [
        (
            sharegpt,
            b"[",
            json.dumps(talk(QUESTION * 50, ANSWER * 50)).encode() + b",\n",
        ),
        (azure, azure_2023(0) + b"\n", azure_2024().split(b"\n")[1] + b"\n"),
        (own, b"", b'{"prompt": "%s", "output_tokens": 5}\n' % (b"x" * 5000)),
    ],
)
def test_memory_does_not_grow_with_the_file(reader, head, piece, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", 1 << 15)
    monkeypatch.setattr(elements, "CHUNK_BYTES", 1 << 15)
    monkeypatch.setattr(sharegpt, "ROWS_PER_BATCH", 16)
    monkeypatch.setattr(Seen, "SLOTS", 1 << 10)

    def peak_bytes(size):
        tracemalloc.start()
        try:
            file = _Long(head, piece, size)
            count = sum(map(len, reader.read(file, Oddities(), None)))
            return tracemalloc.get_traced_memory()[1], count
        finally:
            tracemalloc.stop()

    small, few = peak_bytes(1 << 18)
    large, many = peak_bytes(3 << 18)

    assert many > 2.5 * few
    assert large < 1.3 * small


JUNK = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.sampled_from(
            [
                b'"',
                b",",
                b"\n",
                b"\r\n",
                b"[",
                b"]",
                b"{",
                b"}",
                b"0",
                b"-1",
                b"1e999",
                b"NaN",
                b"\\u",
                b"\xff",
                b"\x00",
                b"9" * 5000,
                b'"hash_ids"',
                b"null",
                b'"conversations":',
                b'"prompt":',
                b'"output_tokens":',
                b" ",
                b"\x1f\x8b",
            ]
        ),
        max_size=40,
    ).map(b"".join),
)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(sorted(SAMPLES)),
    junk=JUNK,
    at=st.floats(0, 1),
    cut=st.floats(0, 1),
    packed=st.booleans(),
    forced=st.booleans(),
)
def test_arbitrary_bytes_end_in_counts_or_a_named_error(  # noqa: PLR0917 - drawn
    tmp_path, name, junk, at, cut, packed, forced
):
    sample = SAMPLES[name]
    place = int(at * len(sample))
    content = sample[:place] + junk + sample[place + int(cut * 50) :]
    if packed:
        content = gzip.compress(content)
        content = content[: len(content) - int(cut * 30)]
    path = tmp_path / "trace"
    path.write_bytes(content)

    try:
        trace = open_trace(path, format_name=name if forced else None)
        found = list(trace.shapes(Oddities()))
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 - either end is fine
    else:
        assert all(s.prompt_tokens > 0 and s.output_tokens > 0 for s in found)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=JUNK, name=st.sampled_from([f.name for f in FORMATS]))
def test_bytes_that_are_no_trace_end_in_counts_or_a_named_error(
    tmp_path, content, name
):
    path = tmp_path / "trace"
    path.write_bytes(content)

    for format_name in (None, name):
        try:
            list(open_trace(path, format_name=format_name).shapes(Oddities()))
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017 - either end is fine


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"a;b\n1;2", "none of the formats"),
        ("TIMESTAMP".encode("utf-16"), "UTF-16"),
        (gzip.compress(azure_2023())[:-20], "cannot read"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(content, words, tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(content)

    with pytest.raises(InputError, match=words):
        list(open_trace(path).shapes(Oddities()))


def test_a_missing_file_a_directory_and_an_unknown_format_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            open_trace(path)
    with pytest.raises(InputError, match="azure, burstgpt"):
        open_trace(tmp_path, format_name="csv")
