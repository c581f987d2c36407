"""What a trained model does: one page about a run, and its figures one by one.

>>> write_report("runs/birds", compare=["runs/flat"])
PosixPath('runs/birds/report/report.html')
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
from torchlht.report.gradcam import ClassMaps, class_maps, gradcam
from torchlht.report.inputs import members, predictions, run_inputs
from torchlht.report.learning import learning_figure, read_history
from torchlht.report.look import figure_png, save_figure, taxonomy_order
from torchlht.report.operating import operating_figure, share_figure
from torchlht.report.overlays import gradcam_figure
from torchlht.report.page import write_report
from torchlht.report.reliability import Reliability, reliability, reliability_figure
from torchlht.report.theme import DARK, LIGHT, Theme, look
from torchlht.report.transitions import mean_transition, mean_transitions, transition_figure, transition_panels

__all__ = [
    "DARK",
    "LIGHT",
    "ClassMaps",
    "PairGroup",
    "Reliability",
    "Theme",
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
    "learning_figure",
    "look",
    "mean_class_recall",
    "mean_transition",
    "mean_transitions",
    "members",
    "operating_figure",
    "predictions",
    "read_class_attributes",
    "read_gamma",
    "read_history",
    "reliability",
    "reliability_figure",
    "run_inputs",
    "save_figure",
    "share_figure",
    "similarity_test",
    "taxonomy_order",
    "transition_figure",
    "transition_panels",
    "write_report",
]
