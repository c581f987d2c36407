"""Figures of what a trained model does: transitions, Grad-CAM, γ, confusions, and what attributes say about a tree.

>>> model, samples = run_inputs("runs/birds")
>>> panels = transition_panels(model, samples, images=[0])
>>> save_figure(transition_figure(model.hierarchy, panels), "transitions.png")
"""

from torchlht.report.attributes import (
    PairGroup,
    attribute_figure,
    cosine_similarity,
    read_class_attributes,
    similarity_test,
)
from torchlht.report.confusion import class_recalls, confusion_figure, confusion_matrix, mean_class_recall
from torchlht.report.curves import gamma_figure, read_gamma
from torchlht.report.gradcam import ClassMaps, class_maps, gradcam, gradcam_figure
from torchlht.report.inputs import members, predictions, run_inputs
from torchlht.report.look import figure_png, save_figure, taxonomy_order
from torchlht.report.transitions import mean_transition, transition_figure, transition_panels

__all__ = [
    "ClassMaps",
    "PairGroup",
    "attribute_figure",
    "class_maps",
    "class_recalls",
    "confusion_figure",
    "confusion_matrix",
    "cosine_similarity",
    "figure_png",
    "gamma_figure",
    "gradcam",
    "gradcam_figure",
    "mean_class_recall",
    "mean_transition",
    "members",
    "predictions",
    "read_class_attributes",
    "read_gamma",
    "run_inputs",
    "save_figure",
    "similarity_test",
    "taxonomy_order",
    "transition_figure",
    "transition_panels",
]
