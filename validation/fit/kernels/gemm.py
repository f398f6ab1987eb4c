"""Matrix products at a model's own shapes, between the measured ones.

At each measured number of rows, what is interpolated is not time but the ratio of the time to the
longer of bytes ÷ bandwidth and FLOPs ÷ peak: it is flat where time itself is not, and what remains
in it are launches and the kernels' efficiency. The ratio's logarithm is linear between measured
(log n, log k), over triangles.
"""

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from servesim.hardware.gpu import GPU
from servesim.model.dtypes import DTYPE_BYTES
from validation.fit.kernels import grids
from validation.fit.rows import Mask, held_out
from validation.sources.aiconfigurator import Table
from validation.sources.tables import Array

ACTIVATION_BYTES = 2
WEIGHT_BYTES = {"fp8_block": 1.0}  # beside DTYPE_BYTES
PEAKS = {"fp8_block": "fp8", "nvfp4": "fp4"}
KEY = 2**26  # n and k in one number: both are below
NARROW = 512  # below so many columns or rows no model's layer lies, and launches are all there is


class Products:
    """Measured products of one dtype on one GPU.

    Attributes:
        rows: measured numbers of rows, rising.
        shapes: measured (n, k), one per row.
        us: time by shape and number of rows.
        measured: whether it was measured; else it goes on as between its neighbours.
    """

    def __init__(self, table: Table, dtype: str, gpu: GPU) -> None:
        self._dtype, self._gpu = dtype, gpu
        m, n, k = (table.columns[name] for name in ("m", "n", "k"))
        self.rows, at_m = np.unique(m, return_inverse=True)
        key, first, at_shape = np.unique(n * KEY + k, return_index=True, return_inverse=True)
        us = np.full((len(key), len(self.rows)), np.nan)
        us[at_shape, at_m] = table.us
        enough = np.isfinite(us).sum(axis=1) > 1
        us, first = us[enough], first[enough]
        self.shapes = np.stack([n[first], k[first]], 1)
        self.measured = np.isfinite(us)
        repaired = grids.despiked(self.rows, us)
        self.us = np.array([grids.read(self.rows, row, self.rows) for row in repaired])
        self._from_all = self._interpolator(np.ones(len(self.shapes), dtype=bool))

    def us_at(self, n: int, k: int, gpu: GPU) -> Array:
        """Time of n × k weights at each of `rows` on a GPU, from all measured shapes.

        On another GPU than was measured, what a product takes beyond the ideal is the same.
        """
        shapes = np.array([[n, k]], dtype=float)
        slower = self._ideal_us(shapes, gpu) - self._ideal_us(shapes, self._gpu)
        return np.asarray((self._us_from(self._from_all, shapes) + slower)[0])

    def us_without(self, left_out: Mask) -> Array:
        """Times of the shapes that are `left_out`, from those that are not."""
        return self._us_from(self._interpolator(~left_out), self.shapes[left_out])

    def held(self) -> Mask:
        """Shapes of a layer's size that a check leaves out, a fifth of them."""
        wide = (self.shapes >= NARROW).all(axis=1)
        inner = (self.shapes < self.shapes.max(axis=0)).all(axis=1)
        return np.asarray(held_out(*self.shapes.T) & wide & inner)

    def nearest(self, n: int, k: int) -> int:
        """Index of the measured shape that is most like n × k."""
        return int(np.abs(np.log(self.shapes / [n, k])).sum(axis=1).argmin())

    def _us_from(self, ratio: "_Ratio", shapes: Array) -> Array:
        return np.asarray(np.exp(ratio.at(shapes)) * self._ideal_us(shapes, self._gpu))

    def _interpolator(self, used: Mask) -> "_Ratio":
        shapes = self.shapes[used]
        return _Ratio(shapes, np.log(self.us[used] / self._ideal_us(shapes, self._gpu)))

    def _ideal_us(self, shapes: Array, gpu: GPU) -> Array:
        n, k = shapes[:, :1], shapes[:, 1:]
        width = WEIGHT_BYTES.get(self._dtype) or DTYPE_BYTES[self._dtype]
        num_bytes = width * n * k + ACTIVATION_BYTES * self.rows * (n + k)
        flops = 2 * self.rows * n * k
        tflops = gpu.tflops(PEAKS.get(self._dtype, self._dtype))
        bandwidth_us = num_bytes / (1e3 * gpu.memory_bandwidth_gb_s)
        return np.asarray(np.maximum(bandwidth_us, flops / (1e6 * tflops)))


class _Ratio:
    """Logarithms over (log n, log k), for every number of rows."""

    def __init__(self, shapes: Array, ratio: Array) -> None:
        points = np.log(shapes)
        self._low, self._high = points.min(axis=0), points.max(axis=0)
        self._linear = LinearNDInterpolator(points, ratio)
        self._nearest = NearestNDInterpolator(points, ratio)

    def at(self, shapes: Array) -> Array:
        """Beyond the measured shapes, that of the nearest edge."""
        points = np.clip(np.log(shapes), self._low, self._high)
        ratio = self._linear(points)
        return np.asarray(np.where(np.isfinite(ratio), ratio, self._nearest(points)))
