"""Learning from samples whose fine label is unknown: targets for it, from neighbours, from the model itself, or from both.

    features, labels ──► metric ──► graph, prototypes ──► propagate ─┐
                                                                     ├──► Targets ──► loss at levels without a label
    averaged model ──► probabilities, confined to what is possible ──┘

A sample whose family is known can only be one of a handful of species: every target is confined to the finest classes under the
deepest label that is known, and its classes are as frequent there as known labels say. Training samples only take part.
"""
