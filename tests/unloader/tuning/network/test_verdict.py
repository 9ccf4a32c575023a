"""The sentence that sums up a network test."""

from __future__ import annotations

import pytest

from unloader.tuning.network.flows import Counts, MessageFlow, PacketFlow, verdict


def packets(began: float, seconds: int = 10) -> PacketFlow:
    """A flow of 100 MB/s."""
    counts = Counts(sent=1000, received=1000, bytes=seconds * 10**8, nanoseconds=seconds * 10**9)
    return PacketFlow(peer="db1:7077", direction="in", counts=counts, began=began)


def messages(began: float) -> MessageFlow:
    """A flow of 50 MB/s."""
    times = dict.fromkeys(("minimum", "average", "p50", "p99", "p999", "maximum"), 0.001)
    return MessageFlow(
        **{"peer": "db1:7077", "direction": "in", "connections": 1, "seconds": 10.0},
        **{"messages": 500, "bytes": 5 * 10**8, "receipts": 50, "backlog": 0, "began": began},
        **times,
    )


@pytest.mark.parametrize(
    ("flows", "rate"),
    [
        ([packets(5.0)], "100.0 MB/s"),
        ([packets(5.0), packets(5.0)], "200.0 MB/s"),
        ([packets(50.0), packets(5.0)], "100.0 MB/s"),
        ([packets(5.0, 20), packets(10.0)], "150.0 MB/s"),
        ([messages(0.0), messages(10.0)], "50.0 MB/s"),
        ([messages(0.0), packets(10.0)], "75.0 MB/s"),
    ],
    ids=["one", "together", "one after the other", "within", "messages", "both tests"],
)
def test_rates_add_up_for_tests_at_the_same_time_only(
    flows: list[PacketFlow | MessageFlow], rate: str
) -> None:
    """A listener that stays hears many tests, one after the other."""
    assert verdict(flows, 0, 1468, None).startswith(f"The network carried {rate}")


def test_one_packet_has_arrived_although_it_took_no_time() -> None:
    flow = PacketFlow(
        peer="db1:7077", direction="in", counts=Counts(sent=1, received=1, bytes=1468)
    )
    assert flow.figures["bytes_per_second"] is None
    text = verdict([flow], 0, 1468, None)
    assert "1,468 bytes" in text
    assert "lost 0.00%" in text
    assert "MB/s" not in text
