"""Transitions between adjacent levels: networks that produce them, and computing with them.

    features u (B, d) ──► TransitionNetwork ──► Transition ──► log p at the next coarser level (B, C_k)
                                                   ▲
                             log p at this level (B, C_{k-1})

Tᵏ is column-stochastic: column j distributes class j of level k-1 over the classes of level k. Everything is in log space and
at least float32, also under autocast: p underflows at a logit gap of 104, log p does not.

core       the base class; dense, the tree itself, and low rank, Q Lᵀ + γ S, as whole matrices of a few samples
           at a time: fastest for small trees
tiled      the same, exactly, a few columns at a time: memory linear in the classes
truncated  only the most probable columns of a sample, the rest by the tree: time linear in the classes, too
networks   networks from features to transitions

Reference: Label Hierarchy Transition, arXiv 2112.02353, section 3.
"""
