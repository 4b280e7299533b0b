"""The table of prices: complete, dated, and found by the names that logs use."""

from datetime import date

import pytest

from fedrouter.data.prices import TokenPrice, price_table
from fedrouter.gateway.config import ABILITIES


def test_the_table_has_a_date_a_source_and_whole_entries():
    table = price_table()
    assert date.fromisoformat(table.date)
    assert table.source
    assert "change" in table.note
    for model in table.models.values():
        assert 0 < model.price.input <= model.price.output
        assert model.cached_input is None or 0 < model.cached_input <= model.price.input
        assert set(model.abilities) <= set(ABILITIES)
        assert model.provider.api_base.startswith("https://")
        assert model.provider.page.startswith("https://")


@pytest.mark.parametrize(
    "name", ["gpt-4o", "openai/gpt-4o", "openai:gpt-4o", "openai:chat:gpt-4o", "azure/eu/gpt-4o", "gpt-4o-20241120"]
)
def test_a_model_is_found_by_the_names_that_logs_use(name):
    assert price_table().find(name).name == "gpt-4o"


@pytest.mark.parametrize("name", ["gpt-4o-2024-05-13", "gpt-4", "my-gpt-4o", ""])
def test_another_model_is_not_found(name):
    """An older snapshot may have had another price: gpt-4o-2024-05-13 had."""
    assert price_table().find(name) is None


def test_a_price_is_for_a_million_tokens():
    assert TokenPrice(2.5, 10).cost(1000, 100) == pytest.approx(0.0035)
