"""Closed loops whose throughput is known: from the cycle of a user, from Little's law."""

import pytest
from serving import MS, LinearTimer, engine, request, serve

from servesim.engine.front_end import FrontEnd
from servesim.workload.release import Users

STEP = 10 * MS


def throughput(record):
    """Requests per picosecond, from the first arrival to the last token."""
    return len(record.requests) / max(r.last_token_ps for r in record.requests)


@pytest.mark.parametrize("users", [1, 3, 8])
@pytest.mark.parametrize("think_ms", [0, 4, 130])
def test_with_room_for_all_a_user_cycles_through_service_and_thought(users, think_ms):
    # a step takes 10 ms however full it is, a request 5 of them: X = N / (S + Z)
    load = [request(i, output=5) for i in range(users * 40)]
    record = serve(load, release=Users(users, think_ms * MS))
    cycle = 5 * STEP + think_ms * MS
    assert throughput(record) == users * 40 / (40 * cycle - think_ms * MS)


def test_with_one_seat_the_seat_is_the_bound_and_all_users_wait_their_turn():
    load = [request(i, prompt=1, output=5) for i in range(400)]
    record = serve(load, engine(max_seqs=1, caching=False), release=Users(8))
    assert throughput(record) == 1 / (5 * STEP)
    # a user's request waits for the seven others
    waits = [r.last_token_ps - r.arrival_ps for r in record.requests[8:]]
    assert set(waits) == {8 * 5 * STEP}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("front_end", [FrontEnd(), FrontEnd(0.003, 1e-4, 0.006)])
def test_littles_law_holds_for_the_users(ahead, front_end):
    # N = X (R + Z): every user is always in the system or thinking, but for the end of the run
    users, think = 6, 45 * MS
    load = [request(i, 0, 1 + i * 7 % 40, 1 + i * 11 % 29) for i in range(3000)]
    timer = LinearTimer(per_step=3 * MS, per_token=MS // 5)
    scheduler = engine(max_seqs=4, async_scheduling=ahead)
    record = serve(load, scheduler, timer, release=Users(users, think), front_end=front_end)
    cycles = sum(r.last_token_ps - r.arrival_ps + think for r in record.requests)
    assert throughput(record) * cycles / len(load) == pytest.approx(users, rel=2e-3)


def test_more_users_bring_more_throughput_up_to_the_seats():
    rates = []
    for users in (1, 2, 4, 8, 16):
        load = [request(i, output=4) for i in range(320)]
        rates.append(throughput(serve(load, engine(max_seqs=8), release=Users(users))))
    assert rates[:4] == [users / (4 * STEP) for users in (1, 2, 4, 8)]
    assert rates[4] == rates[3]
