"""What a chapter shows: source, figures, explorers, tables, predictions, live runs, exercises.

Everything here is readable without a kernel, on light and dark pages, by keyboard, in grey, on a
phone, and as text; and it is the same bytes on every machine when the data are. ``run_again`` is
the exception: it exists in a live kernel only.
"""

from lsdl_lib.show.exercise import ExerciseFailed, check_exercise
from lsdl_lib.show.explore import explore
from lsdl_lib.show.figure import figure
from lsdl_lib.show.predict import predict
from lsdl_lib.show.run_again import run_again
from lsdl_lib.show.source import source
from lsdl_lib.show.style import style
from lsdl_lib.show.tables import compare

__all__ = [
    "ExerciseFailed",
    "check_exercise",
    "compare",
    "explore",
    "figure",
    "predict",
    "run_again",
    "source",
    "style",
]
