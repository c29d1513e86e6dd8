"""Every policy as it is, and as profiles may tune it."""

from __future__ import annotations

from hypothesis import strategies as st

from policies.registry import POLICIES
from vrampack.cards.tuned_policy import TunedPolicy

WEIGHTS = (
    (("opening", 0.0),),
    (("leftover_share", 1.0), ("starvation", 0.0)),
    (("opening", 9.0), ("pressure", 50.0)),
)
TUNED_POLICIES = st.one_of(
    st.sampled_from([TunedPolicy(name) for name in sorted(POLICIES)]),
    st.sampled_from([TunedPolicy(name, (), percent) for name in sorted(POLICIES) for percent in (30, 60, 85)]),
    st.sampled_from([TunedPolicy("tessellate", weights, percent) for weights in WEIGHTS for percent in (None, 60)]),
)
