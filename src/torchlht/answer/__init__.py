"""What to tell the user: from probabilities at every level to one consistent answer, as deep as one can be sure.

rules        which class is answered at each level
calibration  temperatures, so that 90 % means nine times out of ten
restriction  only some classes are possible: --only, --exclude
rollup       the deepest answer that passes a threshold
risk         the threshold that keeps wrong answers under a share, from validation samples
operating    what an operating point is worth: right or wrong, how deep, how much it says
named        all of that in names
"""

from torchlht.answer.calibration import Calibration, fit_calibration
from torchlht.answer.named import Answer, Candidate, LevelAnswer, Named, name_all
from torchlht.answer.operating import Decisions, OperatingCurve, operating_curve, operating_point
from torchlht.answer.restriction import Restriction
from torchlht.answer.risk import RiskCurve, risk_curve
from torchlht.answer.rollup import UNDECIDED, answer_levels
from torchlht.answer.rules import RULES, ancestors_of, backtrack, decide, top_down

__all__ = [
    "RULES",
    "UNDECIDED",
    "Answer",
    "Calibration",
    "Candidate",
    "Decisions",
    "LevelAnswer",
    "Named",
    "OperatingCurve",
    "Restriction",
    "RiskCurve",
    "ancestors_of",
    "answer_levels",
    "backtrack",
    "decide",
    "fit_calibration",
    "name_all",
    "operating_curve",
    "operating_point",
    "risk_curve",
    "top_down",
]
