"""The probes of the physical limit."""

from bench.peers.limit import states


def test_limits_of_one_table_share_its_memory() -> None:
    first, second = states(100, 4, 2), states(100, 4, 2)
    assert first is second
    assert [array.shape for array in first] == [(100, 4), (100, 4)]
    assert states(100, 4, 3) is not first


def test_memory_of_a_table_goes_with_the_last_who_uses_it() -> None:
    from bench.peers import limit

    held = states(50, 4, 1)
    assert (50, 4, 1) in limit._states
    del held
    assert (50, 4, 1) not in limit._states
