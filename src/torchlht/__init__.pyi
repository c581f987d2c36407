"""Where the public names live: read by type checkers, and by `__init__.py` when a name is first used."""

from torchlht.answer.hub import push as push
from torchlht.answer.model import Model as Model
from torchlht.answer.named import Answer as Answer
from torchlht.answer.several import GraphModel as GraphModel
from torchlht.answer.several import load as load
from torchlht.answer.table import Answers as Answers
from torchlht.data.samples import Mask as Mask
from torchlht.data.samples import Samples as Samples
from torchlht.data.samples import read_data as read_data
from torchlht.errors import BackboneError as BackboneError
from torchlht.errors import ConfigError as ConfigError
from torchlht.errors import DataError as DataError
from torchlht.errors import DivergedError as DivergedError
from torchlht.errors import HierarchyError as HierarchyError
from torchlht.errors import LHTError as LHTError
from torchlht.errors import MissingExtraError as MissingExtraError
from torchlht.errors import RunError as RunError
from torchlht.heads.method import Method as Method
from torchlht.heads.method import create_method as create_method
from torchlht.heads.method import list_methods as list_methods
from torchlht.heads.method import register as register
from torchlht.heads.methods.lht import LHTHead as LHTHead
from torchlht.heads.prediction import Prediction as Prediction
from torchlht.heads.prediction import decide as decide
from torchlht.hierarchy.graph import Graph as Graph
from torchlht.hierarchy.tree import Hierarchy as Hierarchy
from torchlht.lab.comparison.grid import compare as compare
from torchlht.lab.options import CompareArgs as CompareArgs
from torchlht.lab.simulation.playing import simulate_questions as simulate_questions
from torchlht.learn.options import TrainArgs as TrainArgs
from torchlht.learn.questions.asking import Questions as Questions
from torchlht.learn.questions.asking import next_questions as next_questions
from torchlht.learn.runs import calibrate as calibrate
from torchlht.learn.runs import evaluate as evaluate
from torchlht.learn.runs import export as export
from torchlht.learn.trained import Trained as Trained
from torchlht.learn.trained import train as train
from torchlht.measure.metrics import HierarchyMetrics as HierarchyMetrics
from torchlht.show.audited import audit as audit
from torchlht.show.page import report as report
from torchlht.sklearn import HierarchicalClassifier as HierarchicalClassifier

__version__: str
