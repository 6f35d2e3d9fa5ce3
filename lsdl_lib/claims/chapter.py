"""The claims of one chapter: check them, keep their records, show them as a table."""

import datetime
import os
import time

from lsdl_lib.claims import numbers, records
from lsdl_lib.claims.expectation import ClaimFailed, Expectation, plain
from lsdl_lib.claims.tables import Table
from lsdl_lib.launch import device, on_main
from lsdl_lib.tier import tier

CLOCKS = ("wall", "virtual", "simulated")


class Claims:
    """The claims of one chapter, in the order in which they were checked.

    Args:
        chapter: the chapter's name, its path under ``book/`` without ending:
            ``"communication/collectives"``.

    Raises:
        ValueError: the name could not be a path below the records' folder.
    """

    def __init__(self, chapter):
        self.chapter = records.chapter_name(chapter)
        self.records = []
        self._cells = {}  # statement -> cell that checked it last
        self._last = time.monotonic()

    def check(
        self,
        statement,
        measured,
        expected=None,
        *,
        rtol=0.0,
        atol=0.0,
        at_most=None,
        at_least=None,
        unit="",
        source="",
        run=None,
        clock=None,
        seed=None,
    ):
        """Check one statement, print one line, and keep a record, also when the statement is false.

        The line holds the statement and what was expected, never what was measured, so that it is
        the same on every machine. Records go to ``$LSDL_RECORDS/<chapter>.json`` if that variable
        is set. Checking a statement again (the cell was run again) replaces its record. Under
        ``torchrun`` every process checks, and only rank 0 prints and writes.

        Args:
            statement: one sentence without its numbers' proof, for example
                ``"ring all-reduce sends 2(p-1)/p n bytes a rank"``. Unique within the chapter.
            measured: number, string, bool, or a sequence, array or tensor of them (all elements
                must hold).
            expected: what measured must equal, within ``atol + rtol * |expected|``; one value for
                all elements or the same shape as measured.
            rtol, atol: tolerances of ``expected``; both 0 means exactly equal.
            at_most, at_least: bounds, included, instead of ``expected``; both make a range.
            unit: the unit of measured and expected.
            source: where the expectation comes from: a paper with its equation or table.
            run: what ``launch`` returned for the run that was measured; None for a computation in
                this process.
            clock: ``"wall"``, ``"virtual"`` or ``"simulated"``, for a time.
            seed: the seed of a random experiment.

        Raises:
            ClaimFailed: the statement is false; the message holds the measured value.
            ValueError: the arguments make no sense; the message names the value.
        """
        statement = " ".join(str(statement).split())
        if not statement:
            raise ValueError("statement is empty: say in one sentence what is claimed")
        if clock not in (None, *CLOCKS):
            raise ValueError(f"clock={clock!r}: give one of {', '.join(CLOCKS)}, or leave it out")
        if run is not None and not all(hasattr(run, a) for a in ("backend", "ranks", "device")):
            raise ValueError(f"run={run!r}: give what launch returned")
        expectation = Expectation(expected, rtol, atol, at_most, at_least, unit)
        measured = plain("measured", measured)
        holds = expectation.holds(measured)
        self._refuse_repetition(statement)
        now = time.monotonic()
        self._keep(
            records.record(
                statement,
                measured,
                expectation,
                holds,
                chapter=self.chapter,
                source=source,
                tier=tier(),
                device=device().type if run is None else run.device,
                backend=None if run is None else run.backend,
                ranks=None if run is None else run.ranks,
                clock=clock,
                seed=seed,
                seconds=now - self._last,
                when=datetime.datetime.now(datetime.UTC).date().isoformat(),
            )
        )
        self._last = now
        if not holds:
            raise ClaimFailed(
                f"{statement}: measured {numbers.text(measured, unit=unit)}, "
                f"expected {expectation.text()}"
            )
        if on_main():
            print(f"holds: {statement} [expected {expectation.text()}]")

    def table(self):
        """Return this chapter's claims as a table: HTML on a page, text in a terminal.

        Where ``make import-records`` has stored this chapter's run on GPUs, a column shows it. A
        cell that shows the table needs the tag ``nbval-ignore-output``, for measured values
        differ.

        Raises:
            ValueError: no claim has been checked.
        """
        if not self.records:
            raise ValueError(f"{self.chapter} has no claims yet: call check before table")
        gpu_run = records.newest_gpu_run(self.chapter)
        by_statement = {r["statement"]: r for r in gpu_run["claims"]} if gpu_run else {}
        headers = ["claim", "expected", "measured", "source", "what ran"] + ["on GPUs"] * bool(
            gpu_run
        )
        rows = []
        for record in self.records:
            row = [
                record["statement"],
                records.expectation_text(record),
                records.measured_text(record),
                record["source"],
                records.what_ran(record),
            ]
            if gpu_run:
                row.append(_on_gpus(by_statement.get(record["statement"])))
            rows.append(row)
        caption = f"Claims of this chapter, {tier()} tier"
        if not gpu_run and any(record["backend"] for record in self.records):
            caption += "; nccl: not yet run"
        return Table(rows, headers, caption)

    def _refuse_repetition(self, statement):
        # The same statement twice in one run of a cell is a loop: only its last pass would be kept.
        cell = _cell()
        if self._cells.get(statement) == cell:
            raise ValueError(
                f'"{statement}" was checked twice in one go: say in each statement what differs, '
                "or check all values at once"
            )
        self._cells[statement] = cell

    def _keep(self, record):
        for place, earlier in enumerate(self.records):
            if earlier["statement"] == record["statement"]:
                self.records[place] = record
                break
        else:
            self.records.append(record)
        folder = os.environ.get("LSDL_RECORDS")
        if folder and on_main():
            records.write(folder, self.chapter, self.records)


def _on_gpus(record):
    if record is None:
        return "not run"
    ran = f"{records.what_ran(record)}, {record['when']}"
    return f"{records.measured_text(record)} ({ran})"


def _cell():
    """Return a number that changes with each run of a notebook cell; outside a notebook, 0."""
    try:
        from IPython import get_ipython
    except ImportError:  # the library needs no IPython where there is no notebook
        return 0
    shell = get_ipython()
    return shell.execution_count if shell else 0
