"""Facts about models in the configuration."""

from __future__ import annotations

from pathlib import Path

from sparktop.config.schema import load
from sparktop.model.targets import ModelFacts


def test_facts_on_models_reach_the_watch(tmp_path: Path) -> None:
    """The bytes per token are stored under the model's name, None if they are not given."""
    path = tmp_path / "sparktop.toml"
    path.write_text('[models."openai/gpt-oss-120b"]\nbytes_per_token_gb = 2.55\n[models.other]\n')
    models = load(path).watch({}).models
    assert models == {"openai/gpt-oss-120b": ModelFacts(2.55), "other": ModelFacts(None)}
