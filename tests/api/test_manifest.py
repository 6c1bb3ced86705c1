"""Objects as people write them."""

import pytest
import yaml

from cotenant.api import manifest


def test_a_time_is_text_with_and_without_quotes() -> None:
    text = "{a: 2026-11-30T00:00:00Z, b: '2026-11-30T00:00:00Z', c: 2026-11-30}\n---\nd: 2026-11-30 01:02:03\n"
    assert list(manifest.documents(text)) == [
        {"a": "2026-11-30T00:00:00Z", "b": "2026-11-30T00:00:00Z", "c": "2026-11-30"},
        {"d": "2026-11-30 01:02:03"},
    ]


def test_everything_else_is_what_yaml_makes_of_it() -> None:
    text = "{a: 1, b: 1.5, c: true, d: null, e: 5m, f: [x], g: {h: i}}"
    assert list(manifest.documents(text.encode())) == list(yaml.safe_load_all(text))
    with pytest.raises(yaml.YAMLError):
        list(manifest.documents("a: !!python/object:os.system {}"))
