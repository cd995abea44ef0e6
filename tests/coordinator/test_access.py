"""A role is what its token shows, not what a header says."""

import logging
from typing import Any

import pytest

from farflung.api import routes
from farflung.api.client import CoordinatorClient
from farflung.api.errors import Refused
from farflung.api.routes import Route
from farflung.wire.node import Heartbeat, Role

PRIVILEGED = [
    route
    for route in vars(routes).values()
    if isinstance(route, Route) and route.roles and not {Role.WORKER, Role.RELAY} & route.roles
]


def path_of(route: Route) -> str:
    return route.path.format(key="rollouts/0/x", sha256="0" * 64, version="0", lease_id="0-0")


async def refused(pool: Any, route: Route, role: Role, token: str | None) -> str | None:
    """The reason of the refusal of an empty call; None when it was let through."""
    async with CoordinatorClient(pool.url, node="stranger", role=role, token=token) as client:
        try:
            await client._exchange(route, 1 << 20, {"key": "rollouts/0/x", "sha256": "0" * 64}, None, None, b"", 0.0)
        except Refused as refusal:
            return refusal.reason
    return None


def test_every_route_that_decides_something_is_for_a_role() -> None:
    paths = {(route.method, route.path) for route in PRIVILEGED}
    assert paths == {
        ("GET", "/v1/objects/{key}"),
        ("GET", "/v1/outcomes"),
        ("GET", "/v1/slots/open"),
        ("POST", "/v1/assignments"),
        ("POST", "/v1/commitments"),
        ("POST", "/v1/finish"),
        ("POST", "/v1/judgements"),
        ("POST", "/v1/publications"),
        ("POST", "/v1/reveals"),
        ("PUT", "/v1/chunks/{sha256}"),
    }


@pytest.mark.parametrize("route", PRIVILEGED, ids=lambda route: f"{route.method} {route.path}")
async def test_a_stranger_gets_nothing_by_naming_a_role(pool: Any, build: Any, route: Route) -> None:
    for role in Role:
        if role in (Role.TRAINER, Role.VALIDATOR):
            others = [token for other, token in build.tokens.items() if other is not role]
            for token in (None, "", "x" * 43, *others):
                assert await refused(pool, route, role, token) == "bad_token", (role, token)
        else:
            assert await refused(pool, route, role, None) == "wrong_role", role
            assert await refused(pool, route, role, build.tokens[Role.TRAINER]) == "wrong_role", role
    status = await (await pool.trainer()).status()
    assert not status.is_finished
    assert status.policy_version == 0


async def test_with_its_token_each_role_does_its_work_and_workers_need_none(pool: Any) -> None:
    await pool.accepted("w1")
    publication = await pool.publish(await (await pool.trainer()).outcomes())
    assert publication.manifest.policy_version == 1
    await (await pool.trainer()).finish()
    assert (await (await pool.trainer()).status()).is_finished


async def test_who_is_turned_away_is_not_listed_and_does_not_count_as_alive(pool: Any) -> None:
    async with CoordinatorClient(pool.url, node="fake", role=Role.VALIDATOR) as fake:
        beat = Heartbeat(
            node="fake", role=Role.VALIDATOR, policy_version=0, activity="", busy_s=0.0, idle_s=0.0, cpu_s=0.0
        )
        with pytest.raises(Refused, match="tokens/validator in the coordinator's run folder"):
            await fake.heartbeat(beat)
    assert (await (await pool.trainer()).status()).nodes == ()
    assert await pool.leased("fake"), "nor does its name count as a validator's"


async def test_without_tokens_a_role_is_believed(start: Any) -> None:
    async with start(tokens=None) as pool, CoordinatorClient(pool.url, node="t", role=Role.TRAINER) as trainer:
        assert await trainer.outcomes() == []


async def test_a_pool_with_no_token_for_a_role_has_nobody_in_it(start: Any) -> None:
    async with start(tokens={}) as pool, CoordinatorClient(pool.url, node="t", role=Role.TRAINER, token="") as trainer:
        with pytest.raises(Refused, match="bad_token"):
            await trainer.outcomes()


async def test_no_token_is_ever_logged(start: Any, build: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "wrong-token-" + "w" * 31
    async with start() as pool:
        await pool.publish()
        async with CoordinatorClient(pool.url, node="t", role=Role.TRAINER, token=wrong) as client:
            with pytest.raises(Refused) as caught:
                await client.outcomes()
    for token in (wrong, *build.tokens.values()):
        assert token not in caplog.text
        assert token not in str(caught.value)
