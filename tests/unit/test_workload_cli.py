"""The command describes a file on a screen of any width, and writes samples."""

import gzip
import json
import random

import pytest
import typer
from typer.testing import CliRunner

from autotune.cli.workload import picture, workload
from autotune.errors import InputError
from autotune.load.described import describe
from autotune.load.traces.files import open_trace


@pytest.fixture
def run():
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(workload)

    def call(*arguments, columns="80"):
        return CliRunner().invoke(
            app, [str(a) for a in arguments], env={"COLUMNS": columns}
        )

    return call


@pytest.fixture
def trace_file(tmp_path):
    draw = random.Random(2)
    path = tmp_path / "t.jsonl"
    rows = [
        {
            "timestamp": i // 5 * 3000,
            "input_length": 512 * (1 + i % 9),
            "output_length": draw.randint(0, 800),
            "hash_ids": [0, *range(i * 10, i * 10 + i % 9)],
        }
        for i in range(400)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_file_is_described_within_eighty_columns(run, trace_file):
    result = run(trace_file)

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert "mooncake format" in lines[0]
    for word in ("requests", "sharing", "prompt", "output", "together", "arrivals"):
        assert word in result.output
    assert "█" in result.output
    assert "gaps vary" in result.output


@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize("plain", [True, False])
def test_no_line_is_wider_than_the_screen(trace_file, width, plain):
    trace = open_trace(trace_file)

    lines = list(picture(trace, describe(trace), width=width, plain=plain))[1:]

    assert max(map(len, lines)) <= width
    assert all(line.isascii() for line in lines) or not plain
    assert any(line.count("#" if plain else "█") > width - 40 for line in lines)


def test_the_shares_of_a_picture_add_up_to_all(trace_file):
    trace = open_trace(trace_file)
    lines = list(picture(trace, describe(trace), width=80))

    shares = [float(line[:-1].split()[-1]) for line in lines if line.endswith("%")]

    assert sum(shares) == pytest.approx(200, abs=2)


def test_skipped_rows_are_named_with_the_first_of_them(run, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00,5,5\n2024-05-10 00:00:00,5,0\n\n"
    )

    output = run(path).output

    assert "1 x no generated tokens (a failed request) (first: row 3)" in output
    assert "1 x blank line (first: row 4)" in output
    assert "0 per second" in output


def test_a_file_without_times_or_contents_says_so(run, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt_tokens": 5, "output_tokens": 1}')

    output = run(path).output

    assert "no times" in output
    assert "1 x one generated token" in output


def test_memory_is_given_for_a_number_of_bytes_per_token(run, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt_tokens": 1048570, "output_tokens": 6}')

    output = run(path, "--kv-bytes-per-token", 1024).output

    assert output.count("1.00 GiB per request") == 4


def test_memory_is_given_for_a_model_and_its_context_is_checked(
    run, tmp_path, trace_file
):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
        "max_position_embeddings": 2048,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))

    output = run(trace_file, "--model", tmp_path / "model").output

    # 2 x 2 heads x 16 wide x 2 bytes x 4 layers = 512 bytes per token.
    longest = max(v for v, _ in describe(open_trace(trace_file)).contexts.counts)
    whole_blocks = -(-longest // 16) * 16
    assert f"longest  {whole_blocks * 512 / 2**20:,.2f} MiB" in output
    assert "exceed its context of 2,048 tokens" in output


def test_a_sample_is_written_and_described_in_turn(run, trace_file, tmp_path):
    output = tmp_path / "out.jsonl"

    result = run(trace_file, "--sample", 100, "-o", output)

    assert result.exit_code == 0
    assert "KS" in result.output
    assert len(output.read_text().splitlines()) == 100
    assert "requests   100" in run(output).output
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_sample_holds_no_text(run, tmp_path):
    path, output = tmp_path / "t.json", tmp_path / "out.jsonl"
    said = [{"from": "human", "value": "a secret question"}] * 1 + [
        {"from": "gpt", "value": "a secret answer, long enough"}
    ]
    path.write_bytes(gzip.compress(json.dumps([{"conversations": said}]).encode()))

    assert run(path, "--sample", 5, "-o", output).exit_code == 0

    assert "secret" not in output.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sample", "5"), "go together"),
        (("-o", "x"), "go together"),
        (("--format", "csv"), "no format"),
        (("--kv-bytes-per-token", "0"), "1 or more"),
        (("--model", "no-such-model"), "unknown model"),
        (("--model", "someone/not-here"), "config.json is not here"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(run, trace_file, arguments, words):
    error = run(trace_file, *arguments).exception

    assert isinstance(error, InputError)
    assert words in str(error)


def test_the_file_that_is_read_is_never_overwritten(run, trace_file):
    before = trace_file.read_bytes()

    error = run(trace_file, "--sample", 5, "-o", trace_file).exception

    assert isinstance(error, InputError)
    assert trace_file.read_bytes() == before


def test_a_sample_that_cannot_be_written_leaves_nothing(run, trace_file, tmp_path):
    error = run(
        trace_file, "--sample", 5, "-o", tmp_path / "no" / "out.jsonl"
    ).exception

    assert isinstance(error, InputError)
    assert "cannot write" in str(error)


def test_a_file_of_which_nothing_can_be_sent_says_why(run, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt_tokens": 0, "output_tokens": 1}\nx')

    error = run(path).exception

    assert isinstance(error, InputError)
    assert "prompt of no tokens" in str(error)
    assert "not JSON" in str(error)
