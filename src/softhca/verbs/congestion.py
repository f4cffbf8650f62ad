"""Congestion control, as an option of adapters."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from softhca.verbs.checks import real, unsigned
from softhca.verbs.errors import VerbsError

_LEAST_GBPS, _MOST_GBPS = 1e-6, 8000.0
_LEAST_US, _MOST_US = 0.001, 1e9


@dataclass(frozen=True, kw_only=True)
class Dcqcn:
    """DCQCN: switches mark packets, receivers tell senders, senders slow down and come back.

    Reliable and unreliable connections of an adapter that has it send packets that may be marked,
    answer marked ones with congestion notifications (CNP), and heed those. Defaults are those of
    Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015.

    Attributes:
        gbps: Rate of the line, in 10^9 bits a second: where rates begin and what they return to.
        cnp_interval_us: A queue pair sends one notification at most in this time.
        alpha_us: After so long without a notification the estimate of congestion decays.
        increase_us: A rate grows each time that so much time has passed,
        increase_bytes: and each time that so many bytes have been sent.
        fast_recovery: So many times it goes halfway back to where it was,
        additive_gbps: then that goal grows by this,
        hyper_gbps: and by this, when time and bytes both have come so far.
        least_gbps: No rate falls below.
        gain: Weight of a notification in the estimate: 1/2 to 1/65536, a power of two.

    Raises:
        VerbsError: EINVAL, for a number that is out of range.
        TypeError: For what is no number.
    """

    gbps: float
    cnp_interval_us: float = 50.0
    alpha_us: float = 55.0
    increase_us: float = 55.0
    increase_bytes: int = 10_000_000
    fast_recovery: int = 5
    additive_gbps: float = 0.04
    hyper_gbps: float = 0.2
    least_gbps: float = 0.01
    gain: float = 1 / 256

    def __post_init__(self) -> None:
        for name in ("gbps", "additive_gbps", "hyper_gbps", "least_gbps"):
            real(name, getattr(self, name), _LEAST_GBPS, _MOST_GBPS)
        if self.least_gbps > self.gbps:
            raise VerbsError(errno.EINVAL, "least_gbps", self.least_gbps, "is above gbps")
        for name in ("cnp_interval_us", "alpha_us", "increase_us"):
            real(name, getattr(self, name), _LEAST_US, _MOST_US)
        for name in ("increase_bytes", "fast_recovery"):
            if not unsigned(name, getattr(self, name), 31):
                raise VerbsError(errno.EINVAL, name, 0, f"must be 1 to {(1 << 31) - 1}")
        real("gain", self.gain, 0, 1)
        if self.gain not in [2.0**-shift for shift in range(1, 17)]:
            raise VerbsError(errno.EINVAL, "gain", self.gain, "must be 1/2, 1/4, ... or 1/65536")

    def settings(self) -> dict[str, int]:
        """The same in whole bits and nanoseconds."""
        return {
            "line_bits_per_second": round(self.gbps * 1e9),
            "least_bits_per_second": round(self.least_gbps * 1e9),
            "additive_bits_per_second": round(self.additive_gbps * 1e9),
            "hyper_bits_per_second": round(self.hyper_gbps * 1e9),
            "cnp_interval_ns": round(self.cnp_interval_us * 1e3),
            "alpha_ns": round(self.alpha_us * 1e3),
            "increase_ns": round(self.increase_us * 1e3),
            "increase_bytes": int(self.increase_bytes),
            "fast_recovery": int(self.fast_recovery),
            "gain_shift": round(1 / self.gain).bit_length() - 1,
        }


def congestion_settings(dcqcn: Dcqcn | None) -> dict[str, int]:
    """The settings of an option; none without it."""
    if dcqcn is None:
        return {}
    if not isinstance(dcqcn, Dcqcn):
        raise TypeError(f"dcqcn must be a Dcqcn, not {type(dcqcn).__name__}")
    return dcqcn.settings()
