"""What the graphs of a GPU take: packed steps, filled up with clients that take none."""

import pytest

torch = pytest.importorskip("torch")


def test_a_packed_step_has_the_bits_of_the_step_and_zeros_for_clients_that_take_none():
    from fedrouter.engines.batched.plan import Step
    from fedrouter.engines.batched.recorded import pack_step, parts_of

    rows = torch.tensor([[4, 7, 9], [1, 2, 0]])
    share = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]], dtype=torch.float64)
    seeds = torch.tensor([[5, -6], [7, -(2**31)]], dtype=torch.int32)
    step = Step(2, rows, share, seeds, (), torch.tensor([3.0, 2.0]))
    found = parts_of(pack_step(step, 4, 2, pinned=False), 4, 3)
    assert torch.equal(found[0], torch.cat([rows, torch.zeros(2, 3)]).int())
    assert torch.equal(found[1], torch.cat([share, torch.zeros(2, 3)]).float())
    assert torch.equal(found[2], torch.cat([seeds, torch.zeros(2, 2)], dim=1).int())
    assert torch.equal(found[3], torch.tensor([3.0, 2.0, 0.0, 0.0]))
    assert found[4].tolist() == pytest.approx([1 - 0.9**2, 1 - 0.999**2])


def test_steps_of_many_numbers_of_clients_are_of_few_kinds():
    from types import SimpleNamespace

    from fedrouter.engines.batched.recorded import SIZES, RecordedStack

    stack = RecordedStack(SimpleNamespace(parameters=range(1000)))
    sizes = [stack._filled(clients) for clients in range(1, 1001)]
    assert all(size >= clients for clients, size in enumerate(sizes, 1))
    assert len(set(sizes)) <= SIZES
    assert sizes[-1] == 1000


def test_the_length_of_a_gradient_follows_from_scalar_products_of_rows():
    """The identity by which clipping knows a gradient that is never written."""
    source = torch.Generator().manual_seed(1)
    below, matrix, direction = (
        torch.randn(shape, generator=source, dtype=torch.float64) for shape in ((9, 5), (7, 5), (9, 7))
    )
    matrix.requires_grad_()
    output = torch.tanh(below @ matrix.T)
    (output * direction).sum().backward()
    delta = direction * (1 - output.detach() ** 2)
    found = ((delta @ delta.T) * (below @ below.T)).sum()
    assert float(found) == pytest.approx(float((matrix.grad**2).sum()), rel=1e-12)
