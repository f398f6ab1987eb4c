"""From scores to residuals, by hand; and how often intervals hold what was measured."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml

from servesim.app.interval_levels import bounds, pairs
from servesim.cost.residuals import parse
from servesim.errors import MissingDataError
from validation.calibrate import book, coverage, residuals, spread
from validation.calibrate.off import Off, half_of, offs, rows_of

ROW = {
    "engine": "vllm",
    "engine_version": "0.12.0",
    "hardware": "h100_sxm",
    "dp": 1,
    "cost": "kernels/a",
    "cost_kind": "kernels",
    "part": "run",
    "statistic": "mean",
    "status": "scored",
    "flags": "",
    "low": math.nan,
    "high": math.nan,
}


def row(case, metric, error, **changes):
    measured = changes.pop("measured", 1.0)
    line = {"case": case, "metric": metric, "measured": measured, "error": error}
    return {**ROW, **line, **changes}


def a_score(folder, *rows):
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / "rows.csv", index=False)
    return folder


def runs(n, gpu="h100_sxm", engine="vllm", configurations=4, scale=1.0):
    """n runs whose logs are those of a straight line, in turn of each configuration."""
    return [
        Off(f"{gpu}{i}", gpu, engine, f"c{i % configurations}", scale * i / n, -scale * i / n)
        for i in range(n)
    ]


class TestRows:
    def test_logs_are_of_measured_over_predicted(self, tmp_path):
        sglang = {"hardware": "h200_sxm", "engine": "sglang", "engine_version": "0.5.6"}
        rows = rows_of(
            [
                a_score(
                    tmp_path / "a",
                    row("x", "ttft_ms", 0.25),  # predicted 1.25 times what was measured
                    row("x", "tpot_ms", -0.5),
                    row("x", "itl_ms", 3.0),
                ),
                a_score(
                    tmp_path / "b",
                    row("y", "ttft_ms", 0.0, statistic="unspecified", **sglang),
                    row(
                        "y",
                        "itl_ms",
                        0.0,
                        hardware="h200_sxm",
                        engine="sglang",
                        engine_version="0.5.6",
                    ),
                ),
            ]
        )
        first, second = offs(rows)
        assert (first.gpu, first.engine, first.cost) == ("h100_sxm", "vllm", "kernels/a")
        assert (first.decode, first.prefill) == pytest.approx((math.log(2), -math.log(1.25)))
        assert (second.gpu, second.engine) == ("h200_sxm", "sglang")
        assert (second.decode, second.prefill) == (0.0, 0.0)

    @pytest.mark.parametrize(
        "changes",
        [
            {"flags": "congested, derived blocks"},
            {"flags": "doubtful source"},
            {"dp": 2},
            {"part": "stage 1"},
            {"status": "failed", "error": math.nan},
            {"statistic": "p99"},
        ],
    )
    def test_what_does_not_count(self, tmp_path, changes):
        out = {"error": 0.0, **changes}
        error = out.pop("error")
        folder = a_score(
            tmp_path / "a", row("x", "ttft_ms", error, **out), row("x", "tpot_ms", error, **out)
        )
        with pytest.raises(MissingDataError, match="no run that counts"):
            rows_of([folder])

    def test_a_run_without_a_ttft_has_no_pair(self, tmp_path):
        assert offs(rows_of([a_score(tmp_path / "a", row("x", "tpot_ms", 0.0))])) == []

    def test_a_folder_without_a_score_is_named(self, tmp_path):
        with pytest.raises(MissingDataError, match=r"nowhere: no rows.csv"):
            rows_of([tmp_path / "nowhere"])


class TestSpread:
    def test_levels_are_those_that_have_runs_beyond(self):
        logs = np.array([[i, -i] for i in range(1, 20)], dtype=float)  # 19 runs: 1/20 … 19/20
        found = spread.tree(logs, "x")
        assert found["levels"] == [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]
        assert found["decode"] == [1, 2, 5, 10, 15, 18, 19]
        assert found["prefill"] == [-19, -18, -15, -10, -5, -2, -1]
        assert found["correlation"] == -1.0
        assert spread.tree(logs[:18], "x")["levels"][0] == 0.1
        assert spread.tree(np.repeat(logs, 3, axis=0), "x")["levels"][0] == 0.025

    def test_a_run_is_as_far_off_as_those_of_other_configurations_say(self):
        logs = np.array([[1.0, 0.0], [3.0, 0.0], [8.0, 1.0]])
        # of group a: from 8 and 1; of b: from the median of 1 and 3, and of 0 and 0
        expected = [[-7.0, -1.0], [-5.0, -1.0], [6.0, 1.0]]
        assert spread.from_others(logs, ["a", "a", "b"]).tolist() == expected
        # around the medians of all: 3 and 0
        assert spread.unseen(logs, ["a", "a", "b"])[:, 0].tolist() == [-4.0, -2.0, 9.0]

    def test_left_out_by_hand(self):
        """Two runs a configuration, of which the last one is far off."""
        logs = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 9.0, 9.0]
        made = [Off(str(i), "a", "vllm", f"c{i // 2}", x, 0.0) for i, x in enumerate(logs)]
        inside = spread.left_out(made)
        # few runs: levels 0.05 and 0.95 are their outermost ones. What the others say of the last
        # two: median 0.25, distances -0.35, -0.25, -0.05, 0.05, 0.25, 0.35, so 0.6 at most
        assert inside[:, 0].tolist() == [True] * 6 + [False] * 2
        assert inside[:, 1].all()

    def test_enough_runs_speak_for_themselves(self):
        found = spread.residuals_by_family(runs(19))
        assert list(found) == [("h100_sxm", "vllm")]
        tree = found["h100_sxm", "vllm"]
        assert tree["of"] == "19 runs in 4 configurations of vllm on h100_sxm"
        assert parse(tree).outermost == pytest.approx(0.05)

    def test_a_single_run_claims_no_certainty(self):
        one = Off("x", "l40s", "vllm", "c", 0.5, -0.25)
        found = spread.residuals_by_family([*runs(40), one, *runs(40, "b200_sxm", "sglang")])
        tree = found["l40s", "vllm"]
        assert tree["of"] == "1 run of vllm on l40s, with the spread of 40 of vllm on h100_sxm"
        distances = spread.from_others(spread.pairs(runs(40)), [r.cost for r in runs(40)])
        logs = 0.5 + math.sqrt(2) * distances[:, 0]
        expected = np.quantile(logs, tree["levels"], method="weibull")
        assert tree["decode"] == pytest.approx(expected.tolist(), abs=1e-4)
        assert tree["decode"][0] < tree["decode"][-1]

    def test_many_runs_of_too_few_configurations_borrow_too(self):
        alike = runs(30, "h200_sxm", configurations=2)
        found = spread.residuals_by_family([*alike, *runs(40)])
        assert "with the spread of 40 of vllm on h100_sxm" in found["h200_sxm", "vllm"]["of"]

    def test_nobody_to_borrow_from(self):
        assert spread.residuals_by_family(runs(5)) == {}

    @pytest.mark.parametrize(("n", "level"), [(19, 0.9), (39, 0.9), (39, 0.95)])
    def test_next_runs_are_held_as_often_as_the_level_says(self, n, level):
        """Runs in configurations that are off alike: an interval of some, tried on another one."""
        draws = np.random.default_rng(1)
        held = []
        for _ in range(500):
            effects = draws.normal(size=(n + 1, 2))  # a configuration each
            known = spread.tree(spread.unseen(effects[:n], range(n)), "x")
            tree = parse(known)
            factors = [math.log(tree.factor("decode", d)) for d, _ in pairs(n, 0.0, 0.5)]
            low, high = bounds(factors, (1 - level) / 2)
            held.append(low <= effects[n, 0] <= high)
        assert np.mean(held) == pytest.approx(level, abs=0.04)  # three standard errors


class TestCommand:
    def scored(self, folder, n=20):
        """n runs, 1 % further off each."""
        rows = [
            row(f"case {i}", metric, i / 100, cost=f"kernels/c{i % 5}")
            for i in range(n)
            for metric in ("ttft_ms", "tpot_ms")
        ]
        return a_score(folder, *rows)

    def test_the_book_gets_them_and_keeps_the_rest(self, tmp_path, monkeypatch, capsys):
        path = tmp_path / "calibration.yaml"
        book.write("h100_sxm", "vllm", {"host": {"us": 1.0}, "residuals": {"old": 1}}, path)
        book.write("h200_sxm", "vllm", {"host": {"us": 2.0}}, path)
        monkeypatch.setattr(book.write_residuals, "__defaults__", (path,))
        folder = self.scored(tmp_path / "score")
        assert residuals.main([f"score={folder}"]) == 0
        assert book.read(path)["h100_sxm"]["vllm"]["residuals"] == {"old": 1}
        assert residuals.main([f"score={folder}", "write=true"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "20 runs in 5 configurations" in out
        # of 20 on a line only the first and the last lie beyond what the others say
        assert "h100_sxm.vllm 20 90% 90%" in out
        entry = book.read(path)["h100_sxm"]["vllm"]
        assert entry["host"] == {"us": 1.0}
        assert parse(entry["residuals"]).of == "20 runs in 5 configurations of vllm on h100_sxm"
        assert book.read(path)["h200_sxm"] == {"vllm": {"host": {"us": 2.0}}}

    def test_the_default_is_of_all_that_were_not_tuned_on(self, tmp_path, monkeypatch):
        path = tmp_path / "calibration.yaml"
        book.write(*book.DEFAULT, {"host": {"us": 1.0}}, path)
        monkeypatch.setattr(book.write_residuals, "__defaults__", (path,))
        other = self.scored(tmp_path / "a")
        rows = pd.read_csv(other / "rows.csv").assign(hardware="h200_sxm")
        rows["case"] += " again"
        second = a_score(tmp_path / "b", *rows.to_dict("records"))
        assert residuals.main([f"score={other},{second}", "into=default", "write=true"]) == 0
        of = book.read(path)["default"]["any"]["residuals"]["of"]
        assert of == "40 runs of 2 GPUs and engines, none tuned on"

    def test_a_cost_keeps_its_comments(self, tmp_path):
        path = tmp_path / "roofline.yaml"
        path.write_text("# why\na: 1 # of it\n")
        tree = {"of": "x", "levels": [0.1, 0.9], "decode": [0, 1], "prefill": [0, 1]}
        for _ in range(2):  # in place of those there
            residuals.write_into(path, tree)
            assert path.read_text().startswith("# why\na: 1 # of it\nresiduals:\n")
            assert yaml.safe_load(path.read_text())["residuals"] == tree
            assert path.read_text().count("residuals:") == 1

    def test_halves_part_the_runs(self, tmp_path, capsys):
        folder = self.scored(tmp_path / "score", 60)
        sizes = []
        for half in (0, 1):
            assert residuals.main([f"score={folder}", f"half={half}"]) == 0
            of = f"{sum(half_of(f'case {i}') == half for i in range(60))} runs"
            assert of in " ".join(capsys.readouterr().out.split())
            sizes.append(int(of.split()[0]))
        assert sum(sizes) == 60
        assert min(sizes) > 19

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "score must be given"),
            (["score=nowhere"], "no rows.csv"),
            (["score=x", "into=familie"], "did you mean 'families'"),
            (["score=x", "half=2"], "half"),
            (["score=x", "writ=true"], "did you mean 'write'"),
            (["score"], "option=value"),
        ],
    )
    def test_bad_input_is_one_line(self, arguments, words, capsys):
        assert residuals.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert words in error
        assert len(error.splitlines()) == 1


class TestCoverage:
    def score(self, folder):
        """TTFT inside, below and above; TPOT inside; one row without an interval."""
        return a_score(
            folder,
            row("a", "ttft_ms", 0.0, measured=1.0, low=0.5, high=2.0),
            row("b", "ttft_ms", 0.0, measured=1.0, low=1.1, high=2.2),
            row("c", "ttft_ms", 0.0, measured=3.0, low=1.0, high=2.0),
            row("d", "ttft_ms", 0.0, measured=2.0, low=1.0, high=2.0, hardware="h200_sxm"),
            row("a", "tpot_ms", 0.0, measured=1.0, low=0.9, high=1.8),
            row("e", "tpot_ms", 0.0, measured=1.0),
        )

    def test_by_hand(self, tmp_path, capsys):
        folder = self.score(tmp_path / "score")
        assert coverage.main([f"score={folder}", "format=json"]) == 0
        lines = json.loads(capsys.readouterr().out)
        by_key = {(line["gpu"], line["metric"]): line for line in lines}
        assert {key: line["share"] for key, line in by_key.items()} == pytest.approx(
            {
                ("h100_sxm", "ttft_ms"): 1 / 3,
                ("h100_sxm", "tpot_ms"): 1.0,
                ("h200_sxm", "ttft_ms"): 1.0,
                ("all", "ttft_ms"): 0.5,
                ("all", "tpot_ms"): 1.0,
            }
        )
        first = by_key["h100_sxm", "ttft_ms"]
        assert [first[k] for k in ("runs", "inside", "below", "above")] == [3, 1, 1, 1]
        assert first["width"] == 2.0

    def test_a_half_and_a_table(self, tmp_path, capsys):
        folder = self.score(tmp_path / "score")
        half = half_of("a")
        expected = [case for case in "abcd" if half_of(case) == half]
        assert coverage.main([f"score={folder}", f"half={half}", "format=json"]) == 0
        lines = json.loads(capsys.readouterr().out)
        (total,) = (li for li in lines if (li["gpu"], li["metric"]) == ("all", "ttft_ms"))
        assert total["runs"] == len(expected) < 4
        assert coverage.main([f"score={folder}"]) == 0
        assert "33%" in capsys.readouterr().out

    def test_a_score_without_intervals(self, tmp_path, capsys):
        folder = a_score(tmp_path / "score", row("a", "ttft_ms", 0.0))
        assert coverage.main([f"score={folder}"]) == 2
        assert "score with intervals.replications=19" in capsys.readouterr().err
