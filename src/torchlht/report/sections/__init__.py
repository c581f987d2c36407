"""The sections of the page, in the order they stand in."""

from torchlht.report.sections.answers import classes_section, confusion_section, mistakes_section
from torchlht.report.sections.head import header
from torchlht.report.sections.inside import attributes_section, gradcam_section, learning_section, transitions_section
from torchlht.report.sections.metrics import metrics_section
from torchlht.report.sections.probabilities import operating_section, reliability_section
from torchlht.report.sections.reading import reading_section
from torchlht.report.sections.subject import Subject

__all__ = ["SECTIONS", "Subject", "header"]

SECTIONS = (
    metrics_section,
    learning_section,
    reliability_section,
    operating_section,
    confusion_section,
    transitions_section,
    gradcam_section,
    classes_section,
    mistakes_section,
    attributes_section,
    reading_section,
)
