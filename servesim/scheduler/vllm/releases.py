"""The releases of vLLM whose V1 scheduler was read and stepped, and who stands for the others.

A profile is the switches (`switches`) of one release: 0.11.0, 0.15.0, 0.20.0, 0.32.0 or
0.33.0. Any other release gets the rules of one of them (`profile_of`), and says so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from servesim.errors import SettingError
from servesim.scheduler.vllm.switches import Switches

_V0_33 = Switches(
    scheduled_victim_keeps_tokens=False,
    index_after_victim="back_if_before",
    goes_on_after_own_preemption=True,
    preemption_clears_drafts=True,
    stores_drafts_in_prefill=False,
    async_length_guard=True,
    async_victim_waits=True,
    async_with_drafts=True,
    lone_request_ignores_threshold=True,
    long_head_without_chunking="stop",
    full_sequence_gate=True,
    admission_watermark=True,
    lookahead_at_admission=True,
    pads_one_token_admission=True,
    set_aside="in_order",
    update_registers_drafted=True,
    prefix_stats_at="admission",
    prefix_stats_of_resumed=False,
    unkeyed_to_head=True,
    defaults_know_160_gib=True,
)
_V0_32 = replace(_V0_33, goes_on_after_own_preemption=False, update_registers_drafted=False)
_V0_20 = replace(
    _V0_32,
    index_after_victim="back_if_scheduled",
    async_victim_waits=False,
    lone_request_ignores_threshold=False,
    admission_watermark=False,
    lookahead_at_admission=False,
    pads_one_token_admission=False,
    set_aside="own_queue",
    prefix_stats_at="lookup",
    unkeyed_to_head=False,
    defaults_know_160_gib=False,
)
_V0_15 = replace(
    _V0_20, stores_drafts_in_prefill=True, full_sequence_gate=False, set_aside="in_order"
)
_V0_11 = replace(
    _V0_15,
    scheduled_victim_keeps_tokens=True,
    index_after_victim="stays",
    preemption_clears_drafts=False,
    async_length_guard=False,
    async_with_drafts=False,
    long_head_without_chunking="skip",
    set_aside="reversed",
    prefix_stats_of_resumed=True,
)

RELEASES: Mapping[str, Switches] = {
    "0.11": _V0_11,
    "0.15": _V0_15,
    "0.20": _V0_20,
    "0.32": _V0_32,
    "0.33": _V0_33,
}
NEWEST = "0.33"
# The last release, (major, minor), that a profile stands for. Beyond, the newest one does: 0.32
# differs from it in two switches, and nobody has looked which of them 0.21 … 0.31 have.
_UP_TO = {"0.11": (0, 11), "0.15": (0, 15), "0.20": (0, 20)}
_RELEASE = re.compile(r"v?(\d+)\.(\d+)((?:\.\w+)*)")


@dataclass(frozen=True, slots=True)
class Release:
    """A release that was asked for, and the profile that answers for it.

    Attributes:
        asked: as the user wrote it.
        profile: name of the profile.
        exact: whether the profile was read off that very release.
        switches: of the profile.
    """

    asked: str
    profile: str
    exact: bool
    switches: Switches

    def describe(self) -> str:
        """The profile, and where it is not that of the very release, what was asked for."""
        inexact = f"{self.profile} (not exact: {self.asked} has no profile of its own)"
        return self.profile if self.exact else inexact


def profile_of(asked: object) -> Release:
    """The profile for a release.

    Up to 0.11: 0.11; 0.12 to 0.15: 0.15; 0.16 to 0.20: 0.20; 0.32, patches included: 0.32; all
    others from 0.21 on: 0.33. Exact are the first releases of the five, such as 0.15.0.

    Raises:
        SettingError: not a release number.
    """
    if not isinstance(asked, str):
        reason = f"must be quoted text, as YAML reads 0.20 as 0.2; nearest: '\"{_closest(asked)}\"'"
        raise SettingError("release", asked, reason)
    match = _RELEASE.fullmatch(asked.strip())
    if match is None:
        known = ", ".join(RELEASES)
        reason = f"must be a release such as {NEWEST} (profiles: {known}); nearest: {NEWEST}"
        raise SettingError("release", asked, reason)
    number, patch = (int(match[1]), int(match[2])), match[3]
    series = f"{number[0]}.{number[1]}"
    stand_in = next((name for name, last in _UP_TO.items() if number <= last), NEWEST)
    name = series if series in RELEASES else stand_in
    exact = name == series and patch in ("", ".0")
    return Release(asked, name, exact, RELEASES[name])


def first_with(switch: str) -> str:
    """The first profile in which a flag is on."""
    return next(name for name, switches in RELEASES.items() if getattr(switches, switch))


def _closest(asked: object) -> str:
    """The release that the number was before YAML dropped a zero, or the newest profile."""
    if not isinstance(asked, float) or not 0 < asked < 1:
        return NEWEST
    full = f"{asked:.2f}"
    return full if full <= NEWEST else f"{asked:g}"  # 0.3 may be 0.30, and 0.8 is no 0.80
