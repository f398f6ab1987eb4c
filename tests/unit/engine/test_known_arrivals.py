"""Requests known beforehand and requests that come by events of their own fare alike."""

import pytest
from serving import MS, engine, request
from simpy import Environment
from test_skipping import GrowingTimer

from servesim.engine.arrivals import NEVER, Arrivals
from servesim.engine.clock import Arrival
from servesim.engine.recorder import Recorder
from servesim.engine.replica import Replica

# bursts, gaps of whole steps, idle times: 40 requests for a small engine
LOAD = [request(i, (i // 3) * 31 * MS + (i % 4) * MS, 5 + i % 7, 1 + i % 19) for i in range(40)]


def served(known, by_event):
    """Records of a replica that knows some requests beforehand and is handed the others."""
    env, scheduler = Environment(), engine(blocks=30, max_seqs=4)
    recorder = Recorder(True, scheduler.block_size)
    replica = Replica(env, scheduler, GrowingTimer(), recorder)
    replica.serve(Arrivals(known, [0.0] * len(known)))

    def client():
        for each in by_event:
            yield Arrival(env, each.arrival_ps - env.now)
            replica.submit(each, 0.0)

    env.process(client())
    env.run()
    return recorder.records(), recorder.steps


def test_it_does_not_matter_who_brings_a_request():
    load = sorted(LOAD, key=lambda each: each.arrival_ps)
    alone = served(load, [])
    assert {each.status for each in alone[0]} == {"finished"}
    assert served([], load) == alone


def test_both_kinds_at_once_are_served_in_order_of_arrival():
    # instants of their own, so that the order of arrival does not depend on who brings what
    load = [request(i, i * 11 * MS + i, 5 + i % 7, 1 + i % 19) for i in range(40)]
    assert served(load[::2], load[1::2]) == served(load, [])


def test_requests_are_taken_in_order_and_once():
    arrivals = Arrivals([request(0, 3), request(1, 5)], [1.0, 2.0])
    assert arrivals.next_ps == 3
    assert arrivals.take() == (request(0, 3), 1.0)
    assert arrivals.next_ps == 5
    assert arrivals.take() == (request(1, 5), 2.0)
    assert arrivals.next_ps == NEVER
    with pytest.raises(ValueError, match="all requests"):
        arrivals.take()
