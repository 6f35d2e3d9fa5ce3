"""Run an experiment again, with other ranks, sizes or methods, and see it over the book's result.

It appears in a live kernel with a reader in front of it, and nowhere else. How it knows: every
request to run a cell says whether its sender can answer questions (``allow_stdin`` of the Jupyter
messaging protocol). JupyterLab, Notebook and VS Code can; ``jupyter execute``, nbconvert, nbval
and every other program that runs notebooks by itself cannot. There ``run_again`` returns None:
the cell has no output, the notebook no widget state, and the static page nothing that looks alive
and is not.
"""

import contextlib
import contextvars
import html
import threading
import time

import ipywidgets as widgets
from IPython import get_ipython

from lsdl_lib.show.controls import Described, control, head, labeled, row, words
from lsdl_lib.show.figure import described, framed
from lsdl_lib.show.style import style
from lsdl_lib.show.svg import svg


def run_again(fn, over, **controls):
    """Show controls, a Run button, and a picture of the new result over the book's result.

    ::

        def picture(mine=None):
            fig, ax = plt.subplots()
            ax.plot(sizes, book, label="the book's run")
            if mine is not None:
                ax.plot(sizes, mine, label="your run")
            return fig

        show.run_again(measure_ring, over=picture, ranks=[2, 4, 8])

    A click calls ``measure_ring(ranks=4)`` in the kernel, so interrupting the kernel stops it. What
    it prints, its progress bars and its errors appear below the button.

    Args:
        fn: the experiment, called with one value a control; usually it calls ``launch``.
        over: draws; called with None for the book's result alone and with what ``fn`` returned
            afterwards. Returns a matplotlib Figure or ``(Figure, alt)``.
        controls: name -> values, as in :func:`lsdl_lib.show.explore`.

    Returns:
        RunAgain, a widget, or None where nobody could press the button.

    Raises:
        ValueError: there is no control, or one has no values; also where nothing is shown.
    """
    choices = {name: labeled(name, values) for name, values in controls.items()}
    if not choices:
        raise ValueError("run_again needs a control, such as ranks=[2, 4]")
    return RunAgain(fn, over, choices) if reader_is_there() else None


def reader_is_there():
    """Tell whether a front end with a reader sent the cell that is running (see the module)."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return False
    content = kernel.get_parent().get("content", {})
    return bool(content.get("allow_stdin", False))


class RunAgain(Described):
    """The live widget that :func:`run_again` returns."""

    def __init__(self, fn, over, choices):
        self.fn = fn
        self.over = over
        self.choices = choices
        self.seconds = {}  # setting -> seconds of its last run
        self.controls = {name: control(name, texts) for name, texts in choices.items()}
        self.button = widgets.Button(description="Run", icon="play", button_style="primary")
        self.bar = widgets.FloatProgress(layout={"display": "none", "width": "10em"})
        self.status = widgets.HTML()
        self.output = widgets.Output()
        self.picture = widgets.HTML()
        self.button.on_click(self._run)
        self._draw(None, "The book's run.")
        super().__init__(
            f"Run it again, here, with other {', '.join(map(words, choices))}",
            [
                head("Run it again, here"),
                row(list(self.controls.values())),
                row([self.button, self.bar, self.status]),
                self.output,
                self.picture,
            ],
        )

    def _run(self, _button):
        texts = {name: control.value for name, control in self.controls.items()}
        values = {name: self.choices[name][text] for name, text in texts.items()}
        setting = ", ".join(f"{words(name)} = {text}" for name, text in texts.items())
        self.output.clear_output()
        start = time.monotonic()
        finished = False
        with self._busy(setting, start), self.output:  # the output shows the traceback of an error
            result = self.fn(**values)
            self._draw(result, f"Your run: {setting}, over the book's run.")
            finished = True
        seconds = time.monotonic() - start
        if finished:
            self.seconds[setting] = seconds
        self._say(f"{'Done' if finished else 'Failed'} after {seconds:.1f} s: {setting}")

    @contextlib.contextmanager
    def _busy(self, setting, start):
        """Disable the button and move the bar while the body runs."""
        over = threading.Event()
        expected = self.seconds.get(setting)

        def tick():
            while not over.wait(0.5):
                elapsed = time.monotonic() - start
                about = f" of about {expected:.0f} s" if expected else " s"
                self._say(f"Running {setting}: {elapsed:.0f}{about}")
                # Without an earlier run there is no estimate: the full bar only says "busy".
                self.bar.value = 100 * min(elapsed / expected, 1) if expected else 100

        self.button.disabled = True
        self.bar.value = 0
        self.bar.layout.display = "flex"
        self._say(f"Running {setting}")
        # The kernel keeps in a context variable which request its messages belong to.
        ticker = threading.Thread(target=contextvars.copy_context().run, args=(tick,), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            over.set()
            ticker.join()
            self.bar.layout.display = "none"
            self.button.disabled = False

    def _draw(self, result, caption):
        with style():
            made = self.over(result)
            fig, alt = made if isinstance(made, tuple) else (made, None)
            image = svg(fig, alt or f"{caption} {described(fig)}")
        self.picture.value = framed(image, caption)

    def _say(self, text):
        self.status.value = f'<span class="lsdl" role="status">{html.escape(text)}</span>'
