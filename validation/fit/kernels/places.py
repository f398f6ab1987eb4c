"""Which table stands for what: the engine's own, else vLLM's on the same GPU."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from servesim.errors import MissingDataError, UnknownChoiceError
from validation.sources.aiconfigurator import Place, Table

FALLBACK_ENGINE = "vllm"


@dataclass(frozen=True)
class Places:
    """Tables of one GPU and engine.

    Attributes:
        own: the GPU, engine and release asked for.
        library_version: release of the matrix products and all-reduces, where it is another.
        library_engine: engine of the matrix products, where it is another.
        read: files that were read, in order; for the YAML.
    """

    own: Place
    library_version: str | None = None
    library_engine: str | None = None
    read: list[str] = field(default_factory=list, compare=False)

    def of_gpu(self, gpu: str) -> "Places":
        """The same of another GPU."""
        return replace(self, own=replace(self.own, gpu=gpu))

    def gemm(self, dtype: str) -> Table:
        """See Place."""
        own = replace(self._library, engine=self.library_engine or self.own.engine)
        return self._first(lambda place: place.gemm(dtype), own)

    def prefill_attention(self, kv_dtype: str, head_dim: int, window: int) -> Table:
        """See Place; without a window where this one was not measured."""
        return self._first(
            lambda place: _windowed(place.prefill_attention, kv_dtype, head_dim, window)
        )

    def decode_attention(self, kv_dtype: str, head_dim: int, window: int) -> Table:
        """See Place; without a window where this one was not measured."""
        return self._first(
            lambda place: _windowed(place.decode_attention, kv_dtype, head_dim, window)
        )

    def all_reduce(self, *, graph: bool) -> Table:
        """See Place."""
        return self._first(lambda place: place.all_reduce(graph=graph), self._library)

    def moe(self, dtype: str) -> Table:
        """See Place."""
        return self._first(lambda place: place.moe(dtype))

    @property
    def _library(self) -> Place:
        return replace(self.own, version=self.library_version or self.own.version)

    def _first(self, read: Callable[[Place], Table], own: Place | None = None) -> Table:
        own = own or self.own
        try:
            table = read(own)
        except MissingDataError:
            if own.engine == FALLBACK_ENGINE:
                raise
            # releases of two engines are no distance apart: the newest
            table = read(replace(own, engine=FALLBACK_ENGINE, version=None))
        if table.file not in self.read:
            self.read.append(table.file)
        return table


def _windowed(
    read: Callable[[str, int, int], Table], kv_dtype: str, head_dim: int, window: int
) -> Table:
    try:
        return read(kv_dtype, head_dim, window)
    except UnknownChoiceError:
        if not window:
            raise
        return read(kv_dtype, head_dim, 0)
