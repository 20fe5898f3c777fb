"""The catalog of the vLLM that is installed, against what was kept of others."""

import json
from pathlib import Path

import pytest

from autotune.engine.arguments import check_names, check_values
from autotune.engine.catalog import Catalog
from autotune.engine.catalog.installed import installed_catalog
from autotune.engine.catalog.intersection import intersect
from autotune.errors import InputError
from autotune.spec import load_space


pytestmark = pytest.mark.engine
CATALOGS = Path(__file__).parents[1] / "data/catalogs"


def test_the_installed_catalog_is_the_one_that_was_kept():
    catalog = installed_catalog()
    kept = CATALOGS / f"vllm_{catalog.version}_{catalog.device}.json"
    if not kept.is_file():
        pytest.skip(f"no snapshot of {catalog.version} on {catalog.device}")

    assert catalog == Catalog.from_json(json.loads(kept.read_text()))


def test_every_default_is_accepted_by_its_own_type():
    refused = {
        a.name: a.refusal(a.default)
        for a in installed_catalog()
        if a.default is not None and a.refusal(a.default)
    }

    assert refused == {}


@pytest.mark.parametrize("name", ["cpu", "default", "glm-4-9b-chat"])
def test_shipped_spaces_keep_some_knobs_here(name):
    here, skipped = intersect(load_space(name, device_count=1), installed_catalog())

    assert "max_num_batched_tokens" in [k.name for k in here.knobs]
    assert all(s.reason for s in skipped)


def test_a_mistyped_fix_is_refused_with_what_is_close():
    with pytest.raises(InputError, match=r"--fix: .*did you mean max_num_seqs\?"):
        check_names(["max_num_seq"], where="--fix")


def test_a_dotted_name_is_known():
    check_names(["compilation_config.cudagraph_mode"], where="here")


def test_a_refused_value_is_named_before_anything_starts():
    with pytest.raises(InputError, match="refuses kv_cache_dtype='fp17'"):
        check_values({"kv_cache_dtype": "fp17"}, where="--fix")
