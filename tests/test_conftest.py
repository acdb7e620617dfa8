"""The guards of conftest.py hold."""

from __future__ import annotations

import socket

import pytest

from tests.linear import assert_linear


@pytest.mark.parametrize("host", ["192.0.2.1", "example.invalid", "2001:db8::1"])
def test_a_test_cannot_reach_another_machine(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as client, pytest.raises(OSError, match="may not connect"):
        client.connect((host, 80))


def test_loopback_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())


def test_quadratic_time_is_seen() -> None:
    assert_linear(lambda num: sum(range(num)), int, 400_000)
    with pytest.raises(AssertionError, match="s at 3000"):
        assert_linear(lambda num: [sum(range(num)) for _ in range(num)], int, 3_000, slack=0)
