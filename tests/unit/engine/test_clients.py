"""Clients that wait for replies, worked out by hand: users, sessions, refusals, a cut run.

A step takes 10 ms. A request of 4 prompt tokens and n reply tokens takes n steps.
"""

import pytest
from serving import MS, engine, request, serve

from servesim.content import Inherited
from servesim.engine.arrivals import NEVER, ClientArrivals
from servesim.engine.front_end import FrontEnd
from servesim.metrics.overload import Overload
from servesim.policies.admission.queue_limit import QueueLimit
from servesim.workload.release import Turns, Users


def ms(records, name):
    """One time of each request, milliseconds."""
    times = (getattr(r, name) for r in records)
    return [time if time is None else time / MS for time in times]


def two_steps_each(count):
    return [request(i) for i in range(count)]


def test_two_users_send_again_at_the_end_of_their_replies():
    done = serve(two_steps_each(5), release=Users(2)).requests
    assert ms(done, "arrival_ps") == [0, 0, 20, 20, 40]
    assert ms(done, "sent_ps") == ms(done, "queued_ps") == ms(done, "arrival_ps")
    # who is sent at the end of a step is in the plan made there
    assert ms(done, "scheduled_ps") == [0, 0, 20, 20, 40]
    assert ms(done, "last_token_ps") == [20, 20, 40, 40, 60]


def test_a_user_thinks_between_reply_and_request():
    done = serve(two_steps_each(5), release=Users(2, think_ps=5 * MS)).requests
    assert ms(done, "arrival_ps") == [0, 0, 25, 25, 50]
    assert ms(done, "last_token_ps") == [20, 20, 45, 45, 70]


def test_request_i_is_the_ith_to_be_sent_whoever_sends_it():
    # replies of 2, 4, 1, 2 and 1 steps: 0 ends at 20, its user sends 2 (20 … 30) and 3 (30 … 50);
    # the user of 1 sends 4 at 40
    load = [request(i, output=steps) for i, steps in enumerate((2, 4, 1, 2, 1))]
    done = serve(load, release=Users(2)).requests
    assert ms(done, "arrival_ps") == [0, 0, 20, 30, 40]
    assert ms(done, "last_token_ps") == [20, 40, 30, 50, 50]


def test_a_wait_for_a_seat_in_the_engine_counts_and_one_in_the_client_does_not():
    seats = engine(max_seqs=1)
    done = serve(two_steps_each(4), seats, release=Users(2)).requests
    assert ms(done, "arrival_ps") == [0, 0, 20, 40]
    assert ms(done, "scheduled_ps") == [0, 20, 40, 60]


def test_a_rate_holds_requests_back_until_they_arrive():
    load = [request(i, i * 15 * MS) for i in range(4)]
    done = serve(load, release=Users(1)).requests
    # 1 waits in the client from 15 to 20, 2 from 30 to 40
    assert ms(done, "arrival_ps") == [0, 20, 40, 60]
    done = serve([request(i, i * 50 * MS) for i in range(3)], release=Users(1)).requests
    assert ms(done, "arrival_ps") == [0, 50, 100]


def test_a_user_whose_request_is_refused_goes_on_with_the_next():
    load = [request(0), request(1, prompt=99), request(2), request(3)]
    done = serve(load, engine(max_model_len=90), release=Users(2)).requests
    assert [r.status for r in done] == ["finished", "rejected", "finished", "finished"]
    assert ms(done, "arrival_ps") == [0, 0, 0, 20]
    done = serve(load, engine(max_model_len=90), release=Users(1, think_ps=5 * MS)).requests
    assert ms(done, "arrival_ps") == [0, 25, 30, 55]


def test_who_finds_the_queue_full_goes_on_as_well():
    # one seat and one place in the queue: 2, 3 and 4 are refused at once
    seats, door = engine(max_seqs=1), QueueLimit(1)
    done = serve(two_steps_each(5), seats, release=Users(3), admission=door).requests
    assert [r.status[:3] for r in done] == ["fin", "rej", "rej", "rej", "rej"]


def test_an_asynchronous_engine_serves_one_user_back_to_back():
    done = serve(two_steps_each(3), engine(async_scheduling=True), release=Users(1)).requests
    assert ms(done, "arrival_ps") == [0, 20, 40]
    assert ms(done, "last_token_ps") == [20, 40, 60]


def test_who_sends_while_an_asynchronous_engine_runs_misses_the_step_it_has_planned():
    load = [request(0, output=2), request(1, output=9), request(2)]
    done = serve(load, engine(async_scheduling=True), release=Users(2)).requests
    # sent at 20 when the step of 20 … 30 has been planned
    assert ms(done, "scheduled_ps") == [0, 0, 30]


def test_what_a_cut_leaves_unsent_is_counted():
    done = serve(two_steps_each(6), release=Users(2, think_ps=5 * MS), until_ps=22 * MS).requests
    assert [r.status for r in done] == ["finished"] * 2 + ["unfinished"] * 4
    assert {r.reason for r in done[2:]} == {"not arrived"}
    assert ms(done, "arrival_ps") == [0, 0, 25, 25, 0, 0]  # two will be sent, two are not due
    assert ms(done, "queued_ps")[2:] == [None] * 4


def test_a_turn_waits_for_the_reply_to_the_one_before():
    # sessions of 2, 1 and 2 turns, starting at 0, 0 and 30; gaps 7 and 0
    load = [request(i, 30 * MS if i > 2 else 0) for i in range(5)]
    release = Turns((None, 7 * MS, None, None, 0))
    done = serve(load, release=release).requests
    assert ms(done, "arrival_ps") == [0, 27, 0, 30, 57]
    assert ms(done, "last_token_ps") == [20, 47, 20, 57, 77]


def test_sessions_wait_for_each_other_where_so_many_may_go_on_at_a_time():
    load = [request(i, (0, 0, 0, 55)[i] * MS) for i in range(4)]
    release = Turns((None, 0, None, None), concurrency=1)
    done = serve(load, release=release).requests
    assert ms(done, "arrival_ps") == [0, 20, 40, 60]
    done = serve(load, release=Turns((None, 0, None, None), concurrency=2)).requests
    assert ms(done, "arrival_ps") == [0, 20, 0, 55]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_turn_finds_what_the_turn_before_left_in_the_cache(ahead):
    # 11 + 6 tokens, 16 of which get KV: four blocks; the second prompt begins with 14 of them and
    # finds three blocks; the third with its own prompt of 30 and 2 of its reply
    first = Inherited.of(None, 0, 0, 14)
    second = Inherited.of(first, 1, 14, 32)
    third = Inherited.of(second, 2, 32, 0)
    sizes = ((11, 6, first), (30, 7, second), (40, 2, third))
    load = [request(i, 0, p, o, content=content) for i, (p, o, content) in enumerate(sizes)]
    scheduler = engine(async_scheduling=ahead)
    record = serve(load, scheduler, release=Turns((None, 0, 5 * MS)))
    assert [r.cached_tokens for r in record.requests] == [0, 12, 32]


def test_a_closed_loop_is_never_said_to_be_overloaded():
    load = [request(i) for i in range(200)]
    closed = serve(load, engine(max_seqs=1), release=Users(100))
    assert set(Overload().measure(closed).values()) == {None}
    opened = serve([request(i, i * MS) for i in range(200)], engine(max_seqs=1))
    assert Overload().measure(opened)["overloaded"] is True
    assert closed.self_limiting
    assert not opened.self_limiting


def test_arrivals_move_when_requests_end():
    load = [request(i) for i in range(2)]
    arrivals = ClientArrivals(load, [1.0, 2.0], Users(1, 5).begin(load), FrontEnd(output_s=1e-9))
    assert arrivals.next_ps == 0
    assert arrivals.take() == (request(0), 1.0)
    assert arrivals.next_ps == NEVER
    with pytest.raises(ValueError, match="on its way"):
        arrivals.take()
    assert arrivals.not_taken() == (request(1),)
    arrivals.ended((0,), 40)
    assert arrivals.next_ps == 40 + 1000 + 5
    assert arrivals.not_taken() == (request(1, 1045),)
    assert arrivals.take() == (request(1, 1045), 2.0)
    arrivals.ended((1,), 90)
    assert arrivals.next_ps == NEVER
    assert arrivals.not_taken() == ()


def test_predictions_must_be_as_many_as_requests():
    load = [request(0), request(1)]
    with pytest.raises(ValueError, match="1 predictions for 2 requests"):
        ClientArrivals(load, [1.0], Users(1).begin(load), FrontEnd())
