"""The page on measuring names tests that exist, for each of its traps."""

import re
from pathlib import Path


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/measurement.md").read_text()
TESTS = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE))

    assert len(named) > 50
    assert {n for n in named if f"def {n}(" not in TESTS} == set()


def test_every_file_that_the_page_names_exists():
    named = re.findall(r"`((?:load|domain|engine|tests/unit)/\w+\.py)`", PAGE)
    roots = (ROOT, ROOT / "src/autotune")

    assert named
    assert [n for n in named if not any((r / n).is_file() for r in roots)] == []


def test_all_traps_are_there_in_order():
    numbers = re.findall(r"^(\d+)\. \*\*", PAGE, flags=re.MULTILINE)

    assert numbers == [str(n) for n in range(1, 28)]
