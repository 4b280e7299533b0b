"""Matrix products of a gateway run in the thread that asks for them."""

from __future__ import annotations


def multiply_in_one_thread() -> None:
    """Keep numpy from spreading the products of this process over all cores.

    A product for a few queries takes microseconds. Threads that wait for the next one, spinning, take the cores that
    requests need: 1.6 ms of processor time a new prompt instead of 0.9 (`auto`, two cores).
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")
