"""What a YAML of kernel tables may hold, and how tables are read beyond their knots."""

from typing import Any

import pytest
from hydra.utils import instantiate
from kernel_costs import TINY, YAML, kernels
from omegaconf import OmegaConf

from servesim.cost.interpolation import ChunkGrid, Grid
from servesim.errors import SettingError, UnknownChoiceError

DECODES = TINY["tables"]["decode_attention"]
CHUNKS = TINY["tables"]["prefill_attention"]


def test_the_yaml_is_its_constructor() -> None:
    assert instantiate(OmegaConf.load(YAML)) == kernels()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dense": {"tokens": [1, 2]}}, r"tables\.dense\.us=None: is missing"),
        ({"dense": None}, r"tables\.dense=None: must be a mapping with tokens and us"),
        ({"dense": {"tokens": [2, 1], "us": [1, 1]}}, r"tables\.dense\.tokens=.*and increase"),
        ({"dense": {"tokens": [1], "us": [1]}}, r"tables\.dense\.tokens=.*two or more"),
        ({"dense": {"tokens": 1, "us": [1]}}, r"tables\.dense\.tokens=1: must be a list"),
        ({"dense": {"tokens": [1, 2], "us": [2, 1]}}, r"tables\.dense\.us=.*must not fall"),
        ({"dense": {"tokens": [1, 2], "us": [1]}}, r"tables\.dense\.us=.*must have 2 values"),
        ({"dense": {"tokens": [1, 2], "us": [1, None]}}, r"tables\.dense\.us=None"),
        ({"exchange": [1]}, r"tables\.exchange=\[1\]: must be a mapping of ranks"),
        ({"exchange": {1: {"tokens": [1, 2], "us": [1, 2]}}}, r"tables\.exchange=1: must be"),
        ({"exchange": {2: {"tokens": [1, 2], "us": [2, 1]}}}, r"exchange\.2\.us=.*must not fall"),
        ({"head": {"row": [1, 2], "us": [1, 2]}}, r"tables\.head\.row=.*did you mean 'rows'"),
        (
            {"decode_attention": {**DECODES, "us": [[10, 11], [9, 12], [10, 13]]}},
            r"tables\.decode_attention\.us\[1\]=.*nowhere be below \[0\]",
        ),
        (
            {"decode_attention": {**DECODES, "us": [[10, 11], [11, 12]]}},
            r"tables\.decode_attention\.us='2 lists': must be 3, one for each knot",
        ),
        (
            {"decode_attention": {**DECODES, "us": [[10, 11], [11, None], [12, 13]]}},
            r"tables\.decode_attention\.us\[1\]=.*must have 2 to 3 values",
        ),
        (
            {"decode_attention": {**DECODES, "seqs": [0, 8, 64]}},
            r"tables\.decode_attention\.seqs=.*must begin at 1 or more",
        ),
        (
            {"prefill_attention": {**CHUNKS, "us": [[1, None], [2, 3]]}},
            r"tables\.prefill_attention\.us\[0\]=None: must be a finite number",
        ),
        ({"prefill_attention": {**CHUNKS, "us": 1}}, r"us=1: must be 2-fold lists"),
        ({"mixed": {"decode_share": -1}}, r"tables\.mixed\.decode_share=-1: must be 0 or more"),
        ({"mixed": 1}, r"tables\.mixed=1: must be a mapping with decode_share"),
        (
            {"uneven": {"seqs_equivalent": 9, "whole_from_seqs": 8}},
            r"tables\.uneven\.seqs_equivalent=9: must be at most whole_from_seqs",
        ),
        ({"tables": {"dens": {}}}, r"tables\.dens=.*did you mean 'dense'"),
        ({"tables": None}, r"tables=None: must be a mapping"),
        ({"graphs": {"sizes": [2, 1]}}, r"graphs\.sizes=\[2, 1\]: must increase"),
        ({"graphs": {"sizes": 4}}, r"graphs\.sizes=4: must be a list"),
        ({"graphs": {"sizes": [0.5]}}, r"graphs\.sizes=0.5: must be a whole number"),
        ({"graphs": {"sizes": [], "size": 1}}, r"graphs\.size=1: is unknown.*did you mean 'sizes'"),
        ({"host": {"us_per_sec": 1}}, r"host\.us_per_sec=1: is unknown.*did you mean 'us_per_seq'"),
        ({"host": {"us": -1}}, r"host\.us=-1: must be 0 or more"),
        ({"host": None}, r"host=None: must be a mapping with us, us_per_seq"),
        ({"fit_range": {"tokens": [1, 2]}}, r"fit_range\.sampled_rows=None: is missing"),
        ({"source": {}}, r"source\.repository=None: is missing"),
        ({"allow_mismatch": 1}, r"allow_mismatch=1: must be true or false"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        kernels(**changes)


def test_an_axis_that_is_none() -> None:
    with pytest.raises(UnknownChoiceError, match="did you mean 'tokens'"):
        kernels().axis_range("token")


def test_a_grid_between_and_beyond() -> None:
    grid = Grid((0, 2), (0, 10), ((0, 10), (4, 24)))
    assert [grid.at(x, 0) for x in (-1, 0, 1, 2, 3)] == [0, 0, 2, 4, 6]
    assert [grid.at(0, y) for y in (-1, 5, 10, 20)] == [0, 5, 10, 20]
    assert grid.at(1, 5) == 9.5
    assert grid.at(2, 20) == 44
    assert grid.at(3, 10) == 31
    assert grid.at(3, 20) == 24 + 20 + 7


def test_a_grid_does_not_fall_beyond_lines_that_would_cross() -> None:
    # the slope is 10 along the lower edge and 0 along the upper one: taken as 10
    grid = Grid((0, 1), (0, 1), ((0, 10), (10, 10)))
    assert [grid.at(2, y) for y in (0, 0.5, 1)] == [20, 20, 20]
    assert [grid.at(x, 2) for x in (0, 0.5, 1)] == [20, 20, 20]


@pytest.mark.parametrize(("chunk", "us"), [(10, 5 + 20), (15, 5 + 30), (20, 5 + 40)])
def test_chunks_with_a_constant(chunk: int, us: float) -> None:
    assert ChunkGrid((10, 20), (0, 1), ((25, 25), (45, 45))).at(chunk, 0) == us


@pytest.mark.parametrize("chunk", [10, 15, 20])
def test_chunks_with_a_square(chunk: int) -> None:
    grid = ChunkGrid((10, 20), (0, 1), ((130, 130), (460, 460)))
    assert grid.at(chunk, 0) == 3 * chunk + chunk * chunk
