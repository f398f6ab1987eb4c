"""Which release gets which rules, and what each rule changes in a run small enough for paper."""

from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from stepping import ANY_GPU, Stepper

from servesim.content import SharedPrefix
from servesim.errors import SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.records import PrefixStats
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.vllm.releases import NEWEST, RELEASES, profile_of
from servesim.scheduler.vllm.switches import Switches
from servesim.scheduler.vllm.v1 import VllmV1

CONF = Path(__file__).parents[3] / "conf/scheduler"


def setup(gpu=ANY_GPU):
    return EngineSetup(gpu, CacheSize(1000, 16, True), 4096, Fcfs())


class TestProfiles:
    @pytest.mark.parametrize(
        ("asked", "profile", "exact"),
        [
            ("0.8.5", "0.11", False),
            ("0.10", "0.11", False),
            ("0.11", "0.11", True),
            ("0.11.0", "0.11", True),
            ("0.11.2", "0.11", False),
            ("0.12", "0.15", False),
            ("0.14.1", "0.15", False),
            ("0.15", "0.15", True),
            ("0.15.1", "0.15", False),
            ("0.16.0", "0.20", False),
            ("v0.20.0", "0.20", True),
            ("0.20.2", "0.20", False),
            ("0.21", "0.33", False),
            ("0.27.1", "0.33", False),
            ("0.31", "0.33", False),
            ("0.32", "0.32", True),
            ("v0.32.0", "0.32", True),
            ("0.32.1", "0.32", False),
            ("0.33", "0.33", True),
            ("0.33.0rc1", "0.33", False),
            ("0.34", "0.33", False),
            ("1.0", "0.33", False),
        ],
    )
    def test_a_release_without_a_profile_gets_the_rules_of_another(self, asked, profile, exact):
        release = profile_of(asked)
        assert (release.profile, release.exact) == (profile, exact)
        assert release.switches is RELEASES[profile]

    @pytest.mark.parametrize("asked", ["", "newest", "0", "0.33-rc", "vllm 0.33", "0.33.", "-1.2"])
    def test_what_is_no_release_is_refused(self, asked):
        with pytest.raises(SettingError, match=r"must be a release such as 0\.33 .*nearest: 0\.33"):
            VllmV1(release=asked)

    @pytest.mark.parametrize(
        ("asked", "nearest"),
        [
            (0.2, "0.20"),
            (0.15, "0.15"),
            (0.25, "0.25"),
            (0.8, "0.8"),
            (0.33, "0.33"),
            (1.5, "0.33"),
            (1, "0.33"),
            (None, "0.33"),
        ],
    )
    def test_a_number_is_refused_as_yaml_drops_its_last_zero(self, asked, nearest):
        with pytest.raises(
            SettingError, match=rf"^release={asked}: must be quoted .*\"{nearest}\""
        ):
            VllmV1(release=asked)

    def test_the_description_says_whose_rules_they_are(self):
        assert VllmV1().describe(setup()).startswith("vLLM V1 scheduler 0.33, synchronous; ")
        text = VllmV1(release="0.17.2", async_scheduling=True, num_speculative_tokens=2).describe(
            setup()
        )
        assert text.startswith(
            "vLLM V1 scheduler 0.20 (not exact: 0.17.2 has no profile of its own), asynchronous; "
        )
        assert text.endswith("; looks at every step (speculation)")

    def test_the_description_says_what_has_no_effect(self):
        words = "scheduler_reserve_full_isl has no effect before 0.20"
        assert words in VllmV1(release="0.15").describe(setup())
        assert words not in VllmV1(release="0.20").describe(setup())
        assert words not in VllmV1(release="0.15", scheduler_reserve_full_isl=False).describe(
            setup()
        )

    def test_the_description_names_every_switch_set_otherwise(self):
        changed = {"unkeyed_to_head": False, "set_aside": "in_order"}
        assert "; unlike 0.33: unkeyed_to_head=false" in VllmV1(switches=changed).describe(setup())

    @pytest.mark.parametrize("release", RELEASES)
    def test_the_yaml_of_a_release_lists_its_switches(self, release):
        tree = OmegaConf.to_container(OmegaConf.load(CONF / f"vllm_v1_{release}.yaml"))
        assert tree["release"] == release
        assert tree["switches"] == {
            field.name: getattr(RELEASES[release], field.name) for field in fields(Switches)
        }

    def test_the_plain_yaml_is_the_newest_release(self):
        tree = OmegaConf.load(CONF / "vllm_v1.yaml")
        assert (tree.release, tree.switches) == (NEWEST, None)
        newest = OmegaConf.load(CONF / f"vllm_v1_{NEWEST}.yaml")
        assert {k: v for k, v in tree.items() if k != "switches"} == {
            k: v for k, v in newest.items() if k != "switches"
        }

    @pytest.mark.parametrize("switches", [3, "unkeyed_to_head", ["unkeyed_to_head"], False])
    def test_switches_that_have_no_names_are_refused(self, switches):
        with pytest.raises(SettingError, match=r"^switches=.*: must be null or switches by name"):
            VllmV1(switches=switches)

    def test_an_unknown_switch_is_named_with_its_neighbour(self):
        with pytest.raises(UnknownChoiceError, match="did you mean 'unkeyed_to_head'"):
            VllmV1(switches={"unkeyed_to_hed": True})

    @pytest.mark.parametrize(
        ("switch", "value", "words"),
        [
            ("unkeyed_to_head", 1, "must be true or false"),
            ("set_aside", "tail", "must be one of reversed, in_order, own_queue"),
            ("prefix_stats_at", True, "must be one of lookup, admission"),
        ],
    )
    def test_a_bad_value_of_a_switch_is_named(self, switch, value, words):
        with pytest.raises(SettingError, match=rf"^switches\.{switch}={value!r}: {words}"):
            VllmV1(switches={switch: value})


def engine(switch, value, **settings):
    return Stepper(switches={switch: value}, **settings)


class TestRunningRequests:
    @pytest.mark.parametrize(("keeps", "batch"), [(False, "high1 mid3"), (True, "low3 high1 mid2")])
    def test_scheduled_victim_keeps_tokens(self, keeps, batch):
        story = engine(
            "scheduled_victim_keeps_tokens",
            keeps,
            blocks=7,
            caching=False,
            order=Priority(),
            max_num_batched_tokens=6,
            long_prefill_token_threshold=3,
            scheduler_reserve_full_isl=False,
        )
        story.add("low", 20, 4, priority=9)
        story.step()
        story.add("high", 3, 8, priority=0)
        story.add("mid", 20, 4, priority=1)
        assert story.steps(2) == ["low3 high3", "low3 high1 mid2"]
        # low takes the last block for its 3 tokens, then high needs one: of a budget of 6,
        # low's 3 are given back, or are gone
        row = story.step()
        assert (row.batch, row.preempted) == (batch, "low")

    def test_a_victim_left_in_the_batch_is_not_sampled_and_resumes_short_of_a_token(self):
        story = Stepper(release="0.11", blocks=6, caching=False, max_len=16, order=Priority())
        story.add("v", 4, 9, priority=9)
        story.step()
        story.add("r", 6, 4)
        story.add("s", 2, 4, arrived_s=1)
        assert story.steps(3) == ["v1 r6 s2", "v1 r1 s1", "v1 r1 s1"]
        # r takes a block of v, which was scheduled before it; the index stays, so s is passed over
        assert story.step() == ("v1 r1", "v", "r1", "r", "1→4")
        # v has 8 known tokens, and the one of the step in which it lost its blocks counts as
        # computed, so that 7 are left
        assert story.step()[:2] == ("s1 v7", "")

    @pytest.mark.parametrize(
        ("rule", "batch"),
        [("back_if_before", "r1 s1"), ("back_if_scheduled", "r1"), ("stays", "r1")],
    )
    def test_index_after_victim_that_was_not_scheduled(self, rule, batch):
        story = engine(
            "index_after_victim",
            rule,
            blocks=7,
            caching=False,
            max_len=16,
            order=Priority(),
            async_scheduling=True,
        )
        story.add("v", 4, 5, priority=9)
        story.step()
        story.add("r", 5, 9)
        story.add("s", 2, 9, arrived_s=1)
        assert story.steps(4) == ["v1 r5 s2", "v1 r1 s1", "v1 r1 s1", "v1 r1 s1"]
        # v's last token is in flight, so it is not scheduled; r needs a third block and takes v's
        assert story.step()[:2] == (batch, "v")

    @pytest.mark.parametrize(
        ("rule", "batch"),
        [("back_if_before", "r1 s1"), ("back_if_scheduled", "r1 s1"), ("stays", "r1")],
    )
    def test_index_after_victim_of_the_same_step(self, rule, batch):
        story = engine(
            "index_after_victim", rule, blocks=6, caching=False, max_len=16, order=Priority()
        )
        story.add("v", 4, 9, priority=9)
        story.step()
        story.add("r", 6, 9)
        story.add("s", 2, 9, arrived_s=1)
        assert story.steps(3) == ["v1 r6 s2", "v1 r1 s1", "v1 r1 s1"]
        # v's eighth token has a slot; r's ninth and s's fifth need a block, and v has two
        assert story.step()[:2] == (batch, "v")

    @pytest.mark.parametrize(("goes_on", "batch"), [(True, "young1"), (False, "")])
    def test_goes_on_after_own_preemption(self, goes_on, batch):
        story = engine(
            "goes_on_after_own_preemption",
            goes_on,
            blocks=5,
            caching=False,
            max_len=16,
            order=Priority(),
        )
        story.add("old", 4, 9, priority=9)
        story.step()
        story.add("young", 4, 5, priority=0, arrived_s=1)
        story.steps(4)
        # old needs a third block when none is left, and is the least urgent itself
        assert story.step()[:2] == (batch, "old")

    @pytest.mark.parametrize(("clears", "batch"), [(True, "b1"), (False, "b3")])
    def test_preemption_clears_drafts(self, clears, batch):
        story = engine(
            "preemption_clears_drafts",
            clears,
            blocks=5,
            caching=False,
            max_len=12,
            max_num_batched_tokens=6,
            num_speculative_tokens=2,
        )
        story.add("a", 6, 4)
        story.step()
        story.add("b", 3, 6)
        assert story.step().batch == "a3 b3"
        # b has 4 known tokens and 2 drafts: a second block, and a holds three of four
        assert story.step()[:2] == ("a3", "b")
        assert story.step()[:4] == ("a3 b3", "", "a1", "a")
        assert story.step().batch == batch  # one token of its prefill is left

    @pytest.mark.parametrize(("stores", "batch"), [(False, "a4"), (True, "a6")])
    def test_stores_drafts_in_prefill(self, stores, batch):
        story = engine(
            "stores_drafts_in_prefill", stores, max_num_batched_tokens=8, num_speculative_tokens=2
        )
        story.add("a", 12, 4)
        story.step()
        story.scheduler.propose({0: 2})
        assert story.step().batch == batch

    @pytest.mark.parametrize(("guard", "batch"), [(True, ""), (False, "a1")])
    def test_async_length_guard(self, guard, batch):
        story = engine("async_length_guard", guard, async_scheduling=True)
        story.add("a", 4, 3)
        assert story.steps(3) == ["a4", "a1", "a1"]  # the third token is in flight
        assert story.step()[:4] == (batch, "", "a1", "a")

    @pytest.mark.parametrize(("waits", "batch"), [(True, {0: 1}), (False, {0: 1, 1: 4})])
    def test_async_victim_waits(self, waits, batch):
        story = engine(
            "async_victim_waits",
            waits,
            blocks=5,
            caching=False,
            max_len=16,
            async_scheduling=True,
        )
        story.add("a", 7, 5)
        story.add("b", 4, 5)
        scheduler = story.scheduler
        first, second = scheduler.schedule(0), scheduler.schedule(0)
        assert [work.num_tokens for work in first.work + second.work] == [7, 4, 1, 1]
        # nothing is delivered yet: a's ninth token takes one of b's two blocks
        assert scheduler.schedule(0).preempted == (1,)
        # b's 4 known tokens would fit into the other one
        assert {w.rid: w.num_tokens for w in scheduler.schedule(0).work} == batch
        outcomes = [scheduler.update(plan, {}) for plan in (first, second)]
        assert [o.emitted for o in outcomes] == [((0, 1), (1, 1))] * 2  # delivered all the same

    def test_async_with_drafts(self):
        with pytest.raises(SettingError, match=r"vLLM 0\.11 refuses it .* or release=0\.15"):
            VllmV1(release="0.11", async_scheduling=True, num_speculative_tokens=2)
        VllmV1(release="0.15", async_scheduling=True, num_speculative_tokens=2)
        switches = {"async_with_drafts": True}
        VllmV1(release="0.11", async_scheduling=True, num_speculative_tokens=2, switches=switches)


class TestWaitingRequests:
    @pytest.mark.parametrize(("ignores", "batch"), [(True, "a10"), (False, "a4")])
    def test_lone_request_ignores_threshold(self, ignores, batch):
        story = engine("lone_request_ignores_threshold", ignores, long_prefill_token_threshold=4)
        story.add("a", 10, 2)
        assert story.step().batch == batch

    @pytest.mark.parametrize(("rule", "batch"), [("stop", "a10"), ("skip", "a10 c3")])
    def test_long_head_without_chunking(self, rule, batch):
        story = engine("long_head_without_chunking", rule, enable_chunked_prefill=False, max_len=16)
        story.add("a", 10, 3)
        story.add("b", 8, 2)  # 6 tokens of budget are left
        story.add("c", 3, 2)
        assert story.step().batch == batch

    @pytest.mark.parametrize(("gate", "batch"), [(True, "a1"), (False, "a1 b7")])
    def test_full_sequence_gate(self, gate, batch):
        story = engine(
            "full_sequence_gate",
            gate,
            blocks=7,
            max_len=24,
            max_num_batched_tokens=8,
            caching=False,
        )
        story.add("a", 8, 4)
        story.add("b", 20, 2)
        story.step()
        assert story.step().batch == batch  # b: 5 blocks, 3 are free

    def test_admission_watermark(self):
        VllmV1(watermark=0.1)
        with pytest.raises(SettingError, match=r"vLLM 0\.20 has no .* 0\.0, or release=0\.32"):
            VllmV1(release="0.20", watermark=0.1)
        VllmV1(release="0.20", watermark=0.1, switches={"admission_watermark": True})

    @pytest.mark.parametrize(("at_once", "free"), [(True, "6→6"), (False, "7→7")])
    def test_lookahead_at_admission(self, at_once, free):
        story = engine("lookahead_at_admission", at_once, num_lookahead_tokens=4)
        story.add("a", 4, 4)
        assert story.step().free == free

    @pytest.mark.parametrize(("pads", "batch"), [(True, "a3 b3"), (False, "a3 b1")])
    def test_pads_one_token_admission(self, pads, batch):
        story = engine("pads_one_token_admission", pads, blocks=17, num_speculative_tokens=2)
        story.add("a", 4, 6)
        story.step()
        story.add("b", 1, 4)
        assert story.step().batch == batch

    def skipping(self, rule, **settings):
        switches = {"long_head_without_chunking": "skip", "set_aside": rule}
        return Stepper(switches=switches, enable_chunked_prefill=False, max_len=16, **settings)

    @pytest.mark.parametrize(
        ("rule", "batch"),
        [("reversed", "a1 c7 b8"), ("in_order", "a1 b8 c7"), ("own_queue", "a1 b8 c7")],
    )
    def test_set_aside_order(self, rule, batch):
        story = self.skipping(rule)
        story.add("a", 10, 2)
        story.add("b", 8, 2)
        story.add("c", 7, 2)
        assert story.steps(2) == ["a10", batch]

    @pytest.mark.parametrize(
        ("rule", "batch"), [("reversed", "y9"), ("in_order", "y9"), ("own_queue", "b15")]
    )
    def test_set_aside_before_or_behind_a_victim(self, rule, batch):
        story = self.skipping(rule, blocks=5, caching=False)
        story.add("x", 4, 9)
        story.add("y", 4, 9)
        story.step()
        story.add("b", 15, 1)  # beyond the 14 tokens that x and y leave
        assert story.steps(4) == ["x1 y1"] * 4
        assert story.step()[:2] == ("x1", "y")
        assert [row.finished for row in (story.step(), story.step(), story.step())][-1] == "x"
        assert story.step().batch == batch

    def test_set_aside_goes_by_priority_where_there_is_one(self):
        for rule in ("reversed", "in_order", "own_queue"):
            story = self.skipping(rule, order=Priority())
            story.add("a", 10, 2)
            story.add("b", 8, 2, priority=2)
            story.add("c", 7, 2, priority=1)
            assert story.steps(2) == ["a10", "a1 c7 b8"]


class TestBlocksAndStatistics:
    @pytest.mark.parametrize(
        ("to_head", "order"),
        [(True, [2, 1, 3, 4, 5, 6, 7, 8]), (False, [3, 4, 5, 6, 7, 8, 2, 1])],
    )
    def test_unkeyed_to_head(self, to_head, order):
        story = engine("unkeyed_to_head", to_head, caching=False)
        story.add("a", 5, 1)
        story.step()
        assert story.scheduler.free_order() == order

    @pytest.mark.parametrize(
        ("registers", "order"),
        [(True, [3, 4, 5, 6, 7, 8, 2, 1]), (False, [3, 2, 4, 5, 6, 7, 8, 1])],
    )
    def test_update_registers_drafted(self, registers, order):
        story = engine("update_registers_drafted", registers, num_speculative_tokens=4)
        story.add("a", 4, 5)
        story.step()
        # of 4 drafts 3 are accepted: 8 tokens have KV, of which 5 were known when it was planned
        assert story.step({"a": 3})[2:4] == ("a4", "a")
        assert story.scheduler.free_order() == order

    @pytest.mark.parametrize(("at", "queries"), [("admission", 8 + 12), ("lookup", 8 + 5 * 12)])
    def test_prefix_stats_at(self, at, queries):
        story = engine("prefix_stats_at", at, blocks=5, max_len=16)
        story.add("a", 8, 4)
        story.add("b", 12, 1)  # three blocks, while a leaves at most two in steps 0 to 3
        assert [row.batch for row in story.run_out()] == ["a8", "a1", "a1", "a1", "b12"]
        assert story.scheduler.prefix_stats == PrefixStats(queries, 0)

    @pytest.mark.parametrize(
        ("counts", "stats"), [(False, PrefixStats(16, 0)), (True, PrefixStats(16 + 13, 8))]
    )
    def test_prefix_stats_of_resumed(self, counts, stats):
        story = engine("prefix_stats_of_resumed", counts, blocks=7, max_num_seqs=2, max_len=24)
        story.add("a", 8, 9)
        story.add("b", 8, 9)
        story.run_out()  # b is preempted at 13 known tokens and finds 8 of them
        assert story.scheduler.prefix_stats == stats

    @pytest.mark.parametrize(
        ("at", "stats"),
        [
            ("admission", PrefixStats(9 + 13, 8)),
            ("lookup", PrefixStats(9 + 5 * 13, 5 * 8)),
        ],
    )
    def test_a_head_that_does_not_fit_is_looked_up_at_every_step(self, at, stats):
        story = engine("prefix_stats_at", at, blocks=5, max_len=20)
        story.add("a", 9, 4, content=SharedPrefix(0, 8))
        story.add("b", 13, 1, content=SharedPrefix(0, 8))
        # b finds a's two blocks and needs two more; one is free until a ends
        assert [row.batch for row in story.run_out()] == ["a9", "a1", "a1", "a1", "b5"]
        assert story.scheduler.prefix_stats == stats

    @pytest.mark.parametrize(("knows", "tokens"), [(True, 16384), (False, 8192)])
    def test_defaults_know_160_gib(self, knows, tokens):
        b200 = GPU("B200", 178.4, 1.0, {}, 1.0)
        profile = VllmV1(switches={"defaults_know_160_gib": knows})
        assert profile.limits(setup(b200)) == (tokens, 1024)


def test_every_switch_has_a_test_of_its_own():
    source = Path(__file__).read_text()
    assert [f.name for f in fields(Switches) if f"def test_{f.name}" not in source] == []
