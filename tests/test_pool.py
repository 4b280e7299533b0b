import pytest

from fedrouter.errors import BadInput
from fedrouter.pool import Model, ModelPool


def test_a_pool_keeps_its_order():
    pool = ModelPool(["b", "a", Model("c", 1.0, 2.0, 8000)])
    assert pool.names == ("b", "a", "c")
    assert [pool.index(name) for name in pool.names] == [0, 1, 2]
    assert "a" in pool
    assert "z" not in pool


def test_a_pool_survives_json():
    pool = ModelPool([Model("a", 0.5, 1.5, 4096), "b"])
    assert ModelPool.from_json(pool.to_json()) == pool


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ModelPool([]), "at least one model"),
        (lambda: ModelPool(["a", "b", "a"]), "duplicates: a"),
        (lambda: Model(""), "non-empty"),
        (lambda: Model("a", input_price=-1), "'a', input_price"),
        (lambda: Model("a", output_price=float("nan")), "'a', output_price"),
        (lambda: Model("a", context=0), "'a', context"),
        (lambda: ModelPool(["a"]).index("z"), "'z' is not in the pool"),
        (lambda: ModelPool.from_json([{"name": "a", "color": "red"}]), "expected name, input_price"),
    ],
)
def test_a_bad_pool_is_refused_by_name(make, said):
    with pytest.raises(BadInput, match=said):
        make()
