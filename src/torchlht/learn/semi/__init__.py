"""Learning from samples whose fine label is unknown: targets for it, from neighbours, from the model itself, or from both.

    features, labels ──► metric ──► graph, prototypes ──► propagate ─┐
                                                                     ├──► Targets ──► loss at levels without a label
    averaged model ──► probabilities, confined to what is possible ──┘

If the family of a sample is known, only a handful of species are possible. Every target is confined to the finest classes under
the deepest known label, and its classes are as frequent there as among known labels. Only training samples take part.
"""
