"""An OpenAI endpoint's every answer ends in chunks or in a named failure."""

import asyncio
import json

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import EngineDied, InputError, RequestRefused
from autotune.load import Chunk, PlannedRequest
from autotune.load.http_target import HttpTarget, encode_body, parse_base_url


REQUEST = PlannedRequest(
    request_id="r-1",
    group=0,
    scheduled_s=0.0,
    prompt_token_ids=(5, 6, 7),
    output_tokens=3,
)


class Pieces(httpx.AsyncByteStream):
    """A body that arrives in given pieces and may break off."""

    def __init__(self, *pieces: bytes, breaks: bool = False) -> None:
        self._pieces = pieces
        self._breaks = breaks

    async def __aiter__(self):
        for piece in self._pieces:
            yield piece
        if self._breaks:
            raise httpx.ReadError("connection reset")


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def token(
    count: int | None, *, text: str = " x", finish: str | None = None, **delta: object
) -> bytes:
    said = {"delta": delta} if delta else {"text": text}
    usage = {"prompt_tokens": 3, "completion_tokens": count}
    choice = {"index": 0, **said, "finish_reason": finish}
    return event({"choices": [choice]} | ({} if count is None else {"usage": usage}))


CLOSING = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}})
DONE = b"data: [DONE]\n\n"
GOOD = (token(1), token(2), token(3, finish="length"), CLOSING, DONE)


def answering(*pieces: bytes, status: int = 200, breaks: bool = False, health=200):
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            if isinstance(health, Exception):
                raise health
            return httpx.Response(health)
        return httpx.Response(status, stream=Pieces(*pieces, breaks=breaks))

    return httpx.MockTransport(handle)


def read(transport: httpx.AsyncBaseTransport, **options: object) -> list[Chunk]:
    async def stream() -> list[Chunk]:
        async with HttpTarget(
            "http://here:1/v1", model="m", transport=transport, **options
        ) as target:
            return [chunk async for chunk in target.stream(REQUEST)]

    return asyncio.run(stream())


def test_a_whole_answer_gives_its_tokens_and_a_closing_chunk():
    chunks = read(answering(*GOOD))

    assert [chunk.token_count for chunk in chunks] == [1, 1, 1, 0]
    assert (chunks[-1].prompt_tokens, chunks[-1].finish_reason) == (3, "length")


def test_stamps_are_taken_in_order_and_the_closing_one_is_the_last_tokens():
    chunks = read(answering(*GOOD))

    stamps = [chunk.received_s for chunk in chunks]
    assert stamps == sorted(stamps)
    assert stamps[-1] == stamps[-2]


def test_an_answer_split_anywhere_is_the_same_answer():
    whole = b"".join(GOOD).replace(b"\n", b"\r\n")
    bytewise = [bytes([byte]) for byte in b": ping\r\n\r\n" + whole]

    assert [c.token_count for c in read(answering(*bytewise))] == [1, 1, 1, 0]


def test_a_chat_answer_starts_with_its_first_reasoning_and_not_with_its_role():
    pieces = (
        token(0, role="assistant", content=""),
        token(1, reasoning="hm", content=None),
        token(3, content="so", finish="stop"),
        DONE,
    )

    chunks = read(answering(*pieces), api="chat", decode=lambda _: "hello")

    assert [chunk.token_count for chunk in chunks] == [1, 2, 0]


def test_without_stated_counts_the_closing_usage_is_shared():
    pieces = (token(None), token(None, finish="stop"), CLOSING, DONE)

    assert sum(chunk.token_count for chunk in read(answering(*pieces))) == 3


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ((), "broke off"),
        ((token(1), token(2)), "broke off"),
        ((token(1), event({"error": {"message": "boom"}}), DONE), "boom"),
        ((b"data: {nonsense\n\n", DONE), "not JSON"),
        ((b'{"choices": []}',), "broke off"),
        ((DONE,), "without any output"),
        ((token(None), token(None, finish="stop"), DONE), "no usage"),
    ],
)
def test_an_answer_that_is_not_whole_is_a_refused_request(pieces, reason):
    with pytest.raises(RequestRefused, match=reason):
        read(answering(*pieces))


def test_a_broken_stream_of_a_living_server_is_a_refused_request():
    with pytest.raises(RequestRefused, match="reset"):
        read(answering(token(1), breaks=True))


@pytest.mark.parametrize("health", [503, httpx.ConnectError("refused")])
def test_a_broken_stream_of_an_unhealthy_server_is_a_dead_engine(health):
    with pytest.raises(EngineDied, match="gone or unhealthy"):
        read(answering(token(1), breaks=True, health=health))


def test_a_stream_that_breaks_only_after_done_is_whole():
    assert len(read(answering(*GOOD, breaks=True))) == 4


def test_a_client_error_quotes_what_the_server_said():
    with pytest.raises(RequestRefused, match="status 400: too long"):
        read(answering(b"too long", status=400, health=503))


def test_a_server_error_asks_whether_the_engine_lives():
    with pytest.raises(RequestRefused, match="status 500"):
        read(answering(b"oops", status=500))
    with pytest.raises(EngineDied, match="status 500"):
        read(answering(b"oops", status=500, health=503))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.sampled_from(GOOD), max_size=8))
def test_any_bytes_end_in_chunks_or_in_a_named_failure(pieces):
    try:
        chunks = read(answering(*pieces))
    except (RequestRefused, EngineDied):
        return
    assert sum(chunk.token_count for chunk in chunks) > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(b"".join(GOOD))), st.booleans())
def test_an_answer_cut_off_anywhere_ends_in_chunks_or_in_a_named_failure(end, breaks):
    try:
        chunks = read(answering(b"".join(GOOD)[:end], breaks=breaks))
    except (RequestRefused, EngineDied):
        return
    assert chunks[-1].finish_reason == "length"


def test_prompts_go_out_as_token_ids_with_the_output_length_pinned():
    body = json.loads(encode_body(REQUEST, model="m"))

    assert body["prompt"] == [5, 6, 7]
    assert (body["max_tokens"], body["min_tokens"]) == (3, 3)
    assert body["ignore_eos"] is True
    assert body["temperature"] == 0
    assert body["stream_options"]["include_usage"] is True


def test_the_openai_dialect_sends_nothing_of_vllms_own():
    body = json.loads(encode_body(REQUEST, model="m", dialect="openai"))

    assert body.keys().isdisjoint({"ignore_eos", "min_tokens", "skip_special_tokens"})
    assert body["stream_options"] == {"include_usage": True}


def test_chat_sends_the_decoded_prompt_as_a_message():
    body = json.loads(
        encode_body(REQUEST, model="m", api="chat", decode=lambda ids: f"{len(ids)}")
    )

    assert body["messages"] == [{"role": "user", "content": "3"}]
    assert "prompt" not in body


def test_chat_without_a_decoder_is_bad_input():
    with pytest.raises(InputError, match="decoder"):
        encode_body(REQUEST, model="m", api="chat")


@pytest.mark.parametrize(
    "text", ["", "here:8000", "ftp://here", "http://", "http://h:port"]
)
def test_an_address_that_cannot_be_used_is_bad_input(text):
    with pytest.raises(InputError, match="endpoint"):
        parse_base_url(text)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", "http://h:1/v1/completions"),
        ("http://h:1/v1/", "http://h:1/v1/completions"),
        ("https://h/gate/v1", "https://h/gate/v1/completions"),
    ],
)
def test_the_address_may_have_its_version_or_a_path(base, url):
    seen = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(400)

    async def send() -> None:
        target = HttpTarget(base, model="m", transport=httpx.MockTransport(handle))
        async for _ in target.stream(REQUEST):
            pass

    with pytest.raises(RequestRefused):
        asyncio.run(send())
    assert seen == [url]


@pytest.mark.parametrize(
    ("status", "said", "reset"),
    [(200, b"", True), (404, b"", False), (503, b"", False), (200, b"false", False)],
)
def test_caches_count_as_reset_only_when_the_server_says_so(status, said, reset):
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=said))

    async def ask() -> bool:
        async with HttpTarget("http://h", model="m", transport=transport) as target:
            return await target.reset_caches()

    assert asyncio.run(ask()) is reset


def test_extra_headers_are_sent_and_may_replace_ours():
    seen = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200)

    async def ask() -> None:
        async with HttpTarget(
            "http://h",
            model="m",
            headers={"Authorization": "Bearer k", "Accept": "*/*"},
            transport=httpx.MockTransport(handle),
        ) as target:
            await target.reset_caches()

    asyncio.run(ask())

    assert seen[0]["authorization"] == "Bearer k"
    assert seen[0].get_list("accept") == ["*/*"]
