"""Blocks that only their own request can find again are kept in runs, to the same effect."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from serving import engine, request

from servesim.content import Content, SharedPrefix, Unique
from servesim.kv.block_pool import BlockPool
from servesim.policies.order.priority import Priority


@dataclass(frozen=True)
class AllShareable:
    """The same keys, but every block is treated as one that others may hit."""

    content: Content

    def block_keys(self, rid, first, last, block_size):
        return self.content.block_keys(rid, first, last, block_size)

    def shareable_blocks(self, block_size):
        return 10**9


def test_own_blocks_go_to_the_tail_deepest_first_and_the_open_one_to_the_head():
    pool = BlockPool(7)
    held = pool.take(4)
    number = pool.release(held, own=range(3))
    assert pool.free_order() == [4, 5, 6, 3, 2, 1]
    assert pool.own_left(number) == 3


def test_a_run_is_eaten_from_its_deep_end():
    pool = BlockPool(7)
    number = pool.release(pool.take(4), own=range(4))
    pool.take(3)  # 5, 6 and the deepest
    assert pool.own_left(number) == 3
    assert pool.reclaim(number) == [1, 2, 3]
    assert pool.num_free == 0


def test_a_run_that_is_gone_is_empty():
    pool = BlockPool(4)
    number = pool.release(pool.take(3), own=range(3))
    pool.take(3)
    assert pool.own_left(number) == 0


shapes = st.lists(
    st.tuples(
        st.integers(1, 30),  # prompt
        st.integers(1, 25),  # reply
        st.integers(0, 2),  # priority
        st.integers(0, 6),  # steps after the one before
        st.sampled_from([0, 0, 8, 13]),  # shared prefix
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=250, deadline=None)
@given(
    shapes,
    st.sampled_from([1, 2, 4]),
    st.integers(0, 15),
    st.booleans(),
    st.integers(2, 8),
    st.booleans(),
)
def test_schedulers_decide_alike_with_runs_and_with_single_blocks(
    shapes, block_size, spare, priority, max_seqs, reserve
):
    blocks = 57 // block_size + 2 + spare

    def contents(shape):
        shared = min(shape[4], shape[0] - 1)
        return SharedPrefix(0, shared) if shared > 0 else Unique()

    pair = [
        engine(
            blocks=blocks,
            block_size=block_size,
            max_tokens=24,
            max_seqs=max_seqs,
            max_model_len=56,
            order=Priority() if priority else None,
            scheduler_reserve_full_isl=reserve,
            stepwise=True,
        )
        for _ in range(2)
    ]
    arrivals, step = [], 0
    for rid, shape in enumerate(shapes):
        step += shape[3]
        prompt, output, urgency = shape[:3]
        both = [
            request(rid, rid, prompt, output, priority=urgency, content=content)
            for content in (contents(shape), AllShareable(contents(shape)))
        ]
        arrivals.append((step, both))
    for now in range(2000):
        while arrivals and arrivals[0][0] <= now:
            for scheduler, each in zip(pair, arrivals.pop(0)[1], strict=True):
                scheduler.add(each)
        plans = [scheduler.schedule(now) for scheduler in pair]
        assert plans[0] == plans[1]
        outcomes = [s.update(p, {}) for s, p in zip(pair, plans, strict=True)]
        assert outcomes[0] == outcomes[1]
        assert pair[0].free_order() == pair[1].free_order()
        if not arrivals and not pair[0].num_running + pair[0].num_waiting:
            break
    else:
        raise AssertionError("did not end")
    assert pair[0].prefix_stats == pair[1].prefix_stats


def test_a_victim_that_had_been_scheduled_in_the_same_step_computes_its_last_block_again():
    # with drafts: the victim's own last block is full, and the requester takes its open ones, so
    # all of its known tokens stay cached; a hit still leaves one to compute
    def batches(wrap):
        scheduler = engine(
            blocks=29,
            block_size=1,
            max_tokens=28,
            max_seqs=2,
            max_model_len=28,
            order=Priority(),
            enable_chunked_prefill=False,
            scheduler_reserve_full_isl=False,
            num_speculative_tokens=2,
            num_lookahead_tokens=2,
        )
        scheduler.add(request(0, 0, 14, 4, priority=1, content=wrap(Unique())))
        seen = []
        for step in range(30):
            if step == 2:
                scheduler.add(request(1, 2, 1, 4, content=wrap(Unique())))
            plan = scheduler.schedule(step)
            seen.append((plan.work, plan.preempted, tuple(scheduler.free_order())))
            scheduler.update(plan, {1: 2})
            scheduler.propose({work.rid: 2 for work in plan.work if work.samples})
        assert scheduler.num_running == scheduler.num_waiting == 0
        return seen

    seen = batches(lambda content: content)
    assert seen == batches(AllShareable)
    assert any(preempted for _, preempted, _ in seen)
