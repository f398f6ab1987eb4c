"""Typed access to the keys of a config.json, with an error that names file, key and value."""

import difflib
from collections.abc import Mapping
from typing import Any

from servesim.errors import ModelConfigError

# far above any published model; a larger value is a slip, and products of such overflow memory
MOST_LAYERS = 2_000
MOST_EXPERTS = 100_000
MOST = 1_000_000_000
_SHOWN = 60


class Config:
    """The keys of one JSON object, or of one nested in it.

    A key that is null counts as absent, as in transformers. Every key that is asked for is
    remembered, so that a reader can say which ones it did not understand.
    """

    def __init__(self, file: str, keys: Mapping[str, Any], path: str = "") -> None:
        self.file, self.keys, self._path = file, keys, path
        self.used: set[str] = set()

    def error(self, key: str, reason: str) -> ModelConfigError:
        """An error about `key`, to be raised."""
        if self.keys.get(key) is None:
            return ModelConfigError(self.file, f"{self._path}{key} {reason}")
        shown = repr(self.keys[key])
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        return ModelConfigError(self.file, f"{self._path}{key}={shown}: {reason}")

    def has(self, key: str) -> bool:
        """Whether it is there and not null."""
        self.used.add(key)
        return self.keys.get(key) is not None

    def whole(
        self, *names: str, default: int | None = None, at_least: int = 1, at_most: int = MOST
    ) -> int:
        """The first of `names` that is there, as a whole number in range.

        Raises:
            ModelConfigError: none is there and there is no default, or the value is none.
        """
        for key in names:
            if self.has(key):
                return self._in_range(key, self.keys[key], at_least, at_most)
        if default is None:
            raise self._missing(names)
        return default

    def maybe(self, *names: str, at_least: int = 1, at_most: int = MOST) -> int | None:
        """As `whole`, None where none is there."""
        if not any(self.has(key) for key in names):
            return None
        return self.whole(*names, at_least=at_least, at_most=at_most)

    def layers(self, *names: str) -> int:
        """A number of layers."""
        return self.whole(*(names or ("num_hidden_layers",)), at_most=MOST_LAYERS)

    def flag(self, *names: str, default: bool) -> bool:
        """The first of `names` that is there, as true or false."""
        for key in names:
            if self.has(key):
                if not isinstance(self.keys[key], bool):
                    raise self.error(key, "must be true or false")
                return bool(self.keys[key])
        return default

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        if not self.has(key):
            return default
        if not isinstance(self.keys[key], str):
            raise self.error(key, "must be text")
        return str(self.keys[key])

    def ratio(self, key: str) -> float:
        """A finite number above 0."""
        value = self.keys.get(key)
        self.used.add(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST:
            return float(value)
        raise self.error(key, "must be a number above 0")

    def list_of(self, key: str, kind: type, length: int | None = None) -> list[Any]:
        """A list whose elements are all of `kind`, of a given length if there is one."""
        value = self.keys.get(key)
        self.used.add(key)
        if not isinstance(value, list):
            raise self.error(key, "must be a list")
        if length is not None and len(value) < length:
            raise self.error(key, f"has {len(value)} entries for {length} layers")
        for item in value:
            if not isinstance(item, kind) or (isinstance(item, bool) and kind is not bool):
                raise self.error(key, f"must hold {kind.__name__}s only, not {item!r:.40}")
        return value if length is None else value[:length]

    def inner(self, key: str) -> "Config | None":
        """A nested object; None where it is absent."""
        if not self.has(key):
            return None
        if not isinstance(self.keys[key], Mapping):
            raise self.error(key, "must be an object")
        return Config(self.file, self.keys[key], f"{self._path}{key}.")

    def over(self, defaults: Mapping[str, Any]) -> "Config":
        """The same with a family's defaults for the keys that are absent."""
        there = {k: v for k, v in self.keys.items() if v is not None or k not in defaults}
        return Config(self.file, {**defaults, **there}, self._path)

    def within(self, keys: Mapping[str, Any], path: str) -> "Config":
        """An object that belongs to this one, e.g. an element of a list."""
        return Config(self.file, keys, f"{self._path}{path}.")

    def _in_range(self, key: str, value: object, at_least: int, at_most: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "must be a whole number")
        if value < at_least:
            raise self.error(key, f"must be {at_least} or more")
        if value > at_most:
            raise self.error(key, f"is beyond any model (at most {at_most})")
        return value

    def _missing(self, names: tuple[str, ...]) -> ModelConfigError:
        wanted = f"{self._path}{names[0]}"
        also = f" (or {', '.join(names[1:])})" if names[1:] else ""
        absent = "is null" if any(key in self.keys for key in names) else "is missing"
        there = [str(key) for key in self.keys if key not in names]
        close = difflib.get_close_matches(names[0], there, n=1, cutoff=0.75)
        hint = f"; nearest key there: '{close[0]}'" if close else ""
        # null is said, and wrong; a key that is nearly there is a slip
        unsaid = names[0] if absent == "is missing" and not close else ""
        return ModelConfigError(self.file, f"{wanted}{also} {absent}{hint}", unsaid)
