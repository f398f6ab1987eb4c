"""All-reduces of a step, from the engine's own measured between as many GPUs."""

import numpy as np

from servesim.deployment import Deployment
from servesim.errors import MissingDataError, SettingError
from servesim.hardware.gpu import GPU
from validation.fit.kernels import grids
from validation.fit.kernels.places import Places
from validation.sources.aiconfigurator import Table
from validation.sources.tables import Array

# for GPUs on PCIe whose all-reduce was not measured: the one on PCIe that was, between two
PCIE_GPU, PCIE_RANKS = "rtx_pro_6000_server", 2
PCIE_GB_S = 64  # of that one, per direction (PCIe 5.0 × 16)
FASTEST_PCIE_GB_S = 64


class AllReduce:
    """Time of one sum over all ranks.

    Attributes:
        origin: where the times are from, in words.
        largest_graph: tokens up to which a sum is in a CUDA graph.
    """

    def __init__(self, places: Places, deployment: Deployment, largest_graph: int) -> None:
        self._tp = deployment.tp
        self._hidden = deployment.model.hidden_size
        self.largest_graph = largest_graph
        self._scale = 1.0
        try:
            self._graph, self._eager = (places.all_reduce(graph=graph) for graph in (True, False))
            ranks = self._tp
            self.origin = f"measured between {ranks} of these GPUs: {self._graph.file}"
        except MissingDataError:
            self._graph, self._eager = _on_pcie(places, deployment.gpu)
            ranks = PCIE_RANKS
            # a ring moves 2 (tp - 1) / tp of the message over each link
            ring = 2 * (self._tp - 1) / self._tp / (2 * (ranks - 1) / ranks)
            self._scale = ring * PCIE_GB_S / deployment.gpu.link_gb_s
            self.origin = (
                f"estimated: {self._graph.file}, {ranks} GPUs on PCIe 5.0, as if for "
                f"{self._scale:.3g} times the bytes; not measured on this GPU"
            )
        self._graph, self._eager = (_of(t, ranks) for t in (self._graph, self._eager))

    def us(self, tokens: Array) -> Array:
        """A sum of the residual stream of so many tokens; in a graph up to the largest one."""
        elements = tokens * self._hidden
        small = tokens <= self.largest_graph
        return np.where(small, self._at(self._graph, elements), self._at(self._eager, elements))

    def gather_us(self, elements: Array) -> Array:
        """Collecting so many elements from all ranks: half of a sum of them."""
        return self._at(self._graph, elements) / 2

    def _at(self, table: Table, elements: Array) -> Array:
        sizes = table.columns["message_size"]
        order = np.argsort(sizes)
        us = grids.despiked(sizes[order], table.us[order])
        return grids.read(sizes[order], us, np.maximum(elements * self._scale, sizes.min()))


def _on_pcie(places: Places, gpu: GPU) -> tuple[Table, Table]:
    if gpu.link_gb_s > FASTEST_PCIE_GB_S:
        raise SettingError("gpu", gpu.name, "has no all-reduce table, and is not on PCIe")
    donor = places.of_gpu(PCIE_GPU)
    return donor.all_reduce(graph=True), donor.all_reduce(graph=False)


def _of(table: Table, ranks: int) -> Table:
    known = sorted({int(x) for x in table.columns["num_gpus"]})
    if ranks not in known:
        raise SettingError("tp", ranks, f"was not measured: {table.file} has {known}")
    return table.where(num_gpus=ranks)
