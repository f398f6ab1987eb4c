"""What lies between client and engine delays both ways; worked out by hand, 10 ms a step."""

import pytest
from serving import MS, engine, request, serve

import servesim
from servesim.engine.front_end import FrontEnd
from servesim.errors import SettingError
from servesim.metrics.base import duration_s, e2e_s, tpot_s, ttft_s
from servesim.workload.release import Users

DELAYS = FrontEnd(queue_s=0.005, queue_s_per_prompt_token=0.001, output_s=0.002)


def test_a_request_is_queued_later_and_its_tokens_come_later():
    (done,) = serve([request(0, prompt=4, output=3)], front_end=DELAYS).requests
    # queued at 5 + 4, steps end at 19, 29 and 39
    assert (done.arrival_ps, done.queued_ps, done.scheduled_ps) == (0, 9 * MS, 9 * MS)
    assert (done.first_token_ps, done.last_token_ps) == (21 * MS, 41 * MS)
    assert (ttft_s(done), e2e_s(done), tpot_s(done)) == (0.021, 0.041, 0.01)


def test_a_run_ends_when_the_client_has_the_last_token():
    record = serve([request(0, prompt=4, output=3)], front_end=DELAYS)
    assert duration_s(record) == 0.041
    assert record.itl_ps == {10 * MS: 2}


def test_a_short_prompt_overtakes_a_long_one_on_its_way_to_the_queue():
    load = [request(0, 0, prompt=8), request(1, MS, prompt=1), request(2, 2 * MS, prompt=6)]
    done = serve(load, engine(max_seqs=1), front_end=DELAYS).requests
    # 13, 7 and 13: at one instant in order of request numbers
    assert [r.queued_ps // MS for r in done] == [13, 7, 13]
    assert [r.scheduled_ps // MS for r in done] == [27, 7, 47]


def test_each_of_those_sent_at_once_waits_for_all_of_them():
    delays = FrontEnd(queue_s=0.005, queue_s_per_request_at_once=0.002)
    load = [request(0), request(1), request(2), request(3, MS)]
    done = serve(load, front_end=delays).requests
    # 5 + 2 others of 2 each; the last is sent alone
    assert [r.queued_ps // MS for r in done] == [9, 9, 9, 6]


def test_a_user_reacts_to_what_it_has_received():
    done = serve([request(i) for i in range(3)], release=Users(1, 3 * MS), front_end=DELAYS)
    # 9 to the queue, two steps, 2 back, 3 to think
    assert [r.arrival_ps // MS for r in done.requests] == [0, 34, 68]


def test_a_user_hears_of_a_refusal():
    load = [request(0, prompt=99), request(1)]
    done = serve(load, engine(max_model_len=90), release=Users(1), front_end=DELAYS).requests
    assert [r.status for r in done] == ["rejected", "finished"]
    assert done[1].arrival_ps == (5 + 99 + 2) * MS


def test_what_a_cut_finds_on_its_way_is_not_lost():
    load = [request(i, i * MS) for i in range(4)]
    done = serve(load, front_end=DELAYS, until_ps=11 * MS).requests
    assert [(r.status, r.queued_ps and r.queued_ps // MS) for r in done] == [
        ("unfinished", 9),
        ("unfinished", 10),
        ("unfinished", None),
        ("unfinished", None),
    ]
    assert [r.arrival_ps // MS for r in done] == [0, 1, 2, 3]


def test_no_front_end_is_not_there():
    assert not FrontEnd().is_there
    assert DELAYS.is_there
    assert FrontEnd(output_s=0.001).is_there
    load = [request(i, i * MS) for i in range(9)]
    assert serve(load, front_end=FrontEnd()) == serve(load)


@pytest.mark.parametrize(
    "name", ["queue_s", "queue_s_per_prompt_token", "output_s", "queue_s_per_request_at_once"]
)
def test_a_delay_is_not_negative(name):
    with pytest.raises(SettingError, match=f"{name}=-1: must be 0 or more"):
        FrontEnd(**{name: -1})


def test_a_run_says_what_its_front_end_adds():
    fixed = ("workload=fixed", "workload.num_requests=5", "workload.rate_rps=0.1")
    delays = ("front_end.queue_s=0.004", "front_end.queue_s_per_prompt_token=1e-6")
    plain = servesim.simulate(*fixed)
    delayed = servesim.simulate(*fixed, *delays, "front_end.output_s=0.001")
    added = delayed.summary["ttft_mean_s"] - plain.summary["ttft_mean_s"]
    assert added == pytest.approx(0.004 + 512e-6 + 0.001)  # prompts of 512 tokens
    assert delayed.summary["tpot_mean_s"] == pytest.approx(plain.summary["tpot_mean_s"])
    assert delayed.summary["itl_mean_s"] == plain.summary["itl_mean_s"]
    assert delayed.summary["front_end_queue_s"] == 0.004
    assert not any(key.startswith("front_end") for key in plain.summary)
    (note,) = (note for note in delayed.notes if note.startswith("front end"))
    assert "4 ms + 1 µs per prompt token to the queue, 1 ms from a step to the client" in note
    assert not any("front end" in note for note in plain.notes)


def test_all_delays_are_scaled_alike():
    assert FrontEnd(0.004, 2e-6, 0.001, 0.5).scaled(2.0) == FrontEnd(0.008, 4e-6, 0.002, 1.0)
    assert not FrontEnd().scaled(3.0).is_there
