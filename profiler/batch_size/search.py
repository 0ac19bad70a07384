"""The largest batch that trains in the memory there is, in few trials: predict, two small sizes, 60 %, choose, verify.

Pure: the trial, the prediction and the reading of free memory are passed in. Nothing is returned that has not run,
and nothing is fitted through measurements: they correct the prediction, which says where to look next.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

from swinmr_profiling.profiler.batch_size.budget import DEFAULT_HEADROOM, less_headroom
from swinmr_profiling.profiler.batch_size.estimate import expected_bytes, largest_expected
from swinmr_profiling.profiler.record.blocks.recommended import (
    BudgetChange,
    Reduction,
    SearchFailure,
    SearchOutcome,
    Trial,
    UnsupportedBatch,
)
from swinmr_profiling.profiler.record.failures import Failure, confirm_memory
from swinmr_profiling.profiler.record.limits import MAX_BATCH_SIZE, MIN_TRAINING_STEPS
from swinmr_profiling.profiler.record.search_record import (
    MemoryNow,
    MemoryReadError,
    ProbeResult,
    SearchResult,
    falling_memory,
)
from swinmr_profiling.profiler.record.units import MIB

SMALL_SIZES = (1, 2)
# The third trial: far enough from the small sizes to be like the large ones, and safe by a wide margin.
MIDDLE_SHARE = 0.6
MAX_TRIALS = 9
# Kernels count samples in 32 bits.
LARGEST_BATCH = 2**31 - 1
# A choice of at least this share of the largest batch that may still fit ends the search.
CLOSE_ENOUGH = 0.95
# Smaller changes of free memory are the driver's own.
CHANGE_BYTES = 64 * MIB


class _EndedError(Exception):
    def __init__(self, outcome: SearchOutcome, reason: str, failure: Failure | None = None) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.failure = outcome, reason, failure


class BatchSearch:
    """One search. `run` it once."""

    def __init__(
        self,
        probe: Callable[[int], ProbeResult],
        predict: Callable[[int], int] | None,
        read_memory: Callable[[], MemoryNow],
        *,
        headroom_share: Fraction = DEFAULT_HEADROOM,
        requested: int | None = None,
        max_trials: int = MAX_TRIALS,
        may_go_on: Callable[[], bool] = lambda: True,
        on_event: Callable[[str], None] = lambda line: None,
    ) -> None:
        """predict: bytes a batch takes from the device, never less for more; None where the network is unpredictable.

        requested: the batch that is wanted; no larger one is tried. on_event: told each trial and each reduction.
        may_go_on: asked before each trial after the small sizes; the search ends with what it has.
        """
        if requested is not None and requested < 1:
            raise ValueError(f"a batch of {requested} was requested: it is at least 1")
        self.probe, self.predict, self.read_memory = probe, predict, read_memory
        self.headroom_share, self.requested = headroom_share, requested
        self.max_trials, self.may_go_on, self.on_event = max_trials, may_go_on, on_event
        self.trials: list[Trial] = []
        self.reductions: list[Reduction] = []
        self.budget_changes: list[BudgetChange] = []
        self.measurements: dict[int, Any] = {}
        self.memory: MemoryNow | None = None
        self._ran: dict[int, ProbeResult] = {}
        self._too_large: dict[int, int] = {}  # batch -> usable bytes when it failed
        self._unsupported: dict[int, str] = {}

    def run(self) -> SearchResult:
        """Searches; whatever the trials do, the result says what was tried and why it ended."""
        try:
            self._search()
        except _EndedError as ended:
            return self._result(ended.outcome, None, ended.reason, ended.failure)
        chosen = self._largest_fit()
        if chosen is None:
            return self._result("nothing_fits", None, self._why_nothing_fits())
        self._tell_reductions(chosen)
        return self._result("found", chosen, self._why(chosen))

    @property
    def usable_bytes(self) -> int:
        return less_headroom(self._available_bytes, self.headroom_share)

    @property
    def _available_bytes(self) -> int:
        return 0 if self.memory is None else self.memory.available_bytes

    def _search(self) -> None:
        self._read()
        for size in SMALL_SIZES:
            if self.requested is None or size <= self.requested:
                self._try(size)
            if self._largest_fit() != size:
                break
        while len(self.trials) < self.max_trials and self.may_go_on():
            following = self._next()
            if following is None:
                return
            self._try(following)

    def _read(self) -> None:
        before = self._available_bytes
        try:
            self.memory = self.read_memory()
        except MemoryReadError as error:
            raise _EndedError("failed", f"free memory: {error}", error.failure) from None
        now = self._available_bytes
        if self.trials and abs(now - before) > CHANGE_BYTES:
            place = len(self.trials) + 1
            self.budget_changes.append(BudgetChange(before_trial=place, from_bytes=before, to_bytes=now))
            word = "less" if now < before else "more"
            self.on_event(f"{abs(now - before) / MIB:,.0f} MiB {word} memory is available than before")
        if self.memory.unused_bytes <= 0:
            raise _EndedError("no_free_memory", "the device has no free memory: other processes hold it all")

    def _try(self, size: int) -> None:
        if self.trials:
            self._read()
        expected = self._estimate(size)
        result = self.probe(size)
        verdict, detail = self._judge(size, result)
        self._record(size, expected, result, verdict, detail)
        self.on_event(f"batch {size}: {verdict}" + ("" if detail is None else f", {detail}"))
        if verdict == "OOM" or verdict == "too_large":
            self._too_large[size] = self.usable_bytes
        elif verdict == "unsupported" and size > 1:
            self._unsupported[size] = detail or ""
        elif result.failure is not None:
            raise _EndedError("failed", f"batch {size}: {detail}", result.failure)

    def _judge(self, size: int, result: ProbeResult) -> tuple[str, str | None]:
        """Verdict and detail of a trial; what ran is kept. Raises _EndedError for a measurement that is none."""
        if result.failure is not None:
            smaller = max((ran for ran in self._ran if ran < size), default=None)
            failure = confirm_memory(result.failure, smaller)
            return failure.error, failure.detail
        if result.steps_run < MIN_TRAINING_STEPS:
            steps = f"{result.steps_run} training steps ran, and {MIN_TRAINING_STEPS} are needed"
            self._end_failed_measurement(size, result, steps)
        assert result.peak_bytes is not None
        self._ran[size] = result
        if result.measurement is not None:
            self.measurements[size] = result.measurement
        fall = falling_memory(
            {size: ran.allocated_bytes or ran.peak_bytes or 0 for size, ran in self._ran.items()}
        )
        if fall is not None:
            self._end_failed_measurement(size, result, fall)
        if result.retries:
            return "too_large", f"the allocator had to give cached memory back {result.retries} times"
        if result.peak_bytes > self.usable_bytes:
            peak, usable = result.peak_bytes / MIB, self.usable_bytes / MIB
            return "too_large", f"{peak:,.0f} MiB of {usable:,.0f} MiB usable"
        return "fits", None

    def _record(
        self, size: int, expected: int | None, result: ProbeResult, verdict: str, detail: str | None
    ) -> None:
        self.trials.append(
            Trial(
                batch_size=size,
                available_bytes=self._available_bytes,
                usable_bytes=self.usable_bytes,
                expected_bytes=expected,
                peak_bytes=result.peak_bytes,
                steps_run=result.steps_run,
                retries=result.retries,
                verdict=verdict,
                detail=detail,
            )
        )

    def _end_failed_measurement(self, size: int, result: ProbeResult, why: str) -> NoReturn:
        self._record(size, None, result, "failed_measurement", why)
        failure = Failure("exception", f"failed measurement: {why}")
        raise _EndedError("failed", f"failed measurement at batch {size}: {why}", failure)

    def _fits_now(self, result: ProbeResult) -> bool:
        return not result.retries and result.peak_bytes is not None and result.peak_bytes <= self.usable_bytes

    def _largest_fit(self) -> int | None:
        return max((size for size, result in self._ran.items() if self._fits_now(result)), default=None)

    def _upper(self) -> int | None:
        """The smallest batch known not to work, with the memory there is now."""
        # A failure with less memory than now proves nothing.
        stale = self.usable_bytes - CHANGE_BYTES
        known = [size for size, usable in self._too_large.items() if usable >= stale]
        known += [size for size, result in self._ran.items() if not self._fits_now(result)]
        return min([*known, *self._unsupported], default=None)

    def _next(self) -> int | None:
        """The batch to try next, or None where the search is done."""
        lower, upper = self._largest_fit(), self._upper()
        if lower is None:
            return None
        limit = self._limit(upper)
        if limit != self.requested and lower >= limit * CLOSE_ENOUGH:
            return None
        if upper is not None and (upper in self._unsupported or self._was_expected_to_fit(upper)):
            # The estimate knows nothing of this limit, so the middle is the best guess.
            size = MAX_BATCH_SIZE if lower < MAX_BATCH_SIZE < upper else (lower + upper) // 2
        else:
            middle = max(self._ran) <= SMALL_SIZES[-1]
            size = self._largest_expected(lower, limit, MIDDLE_SHARE) if middle else lower
            if size <= lower:
                size = self._largest_expected(lower, limit, 1.0)
            if size != self.requested and size * CLOSE_ENOUGH <= lower:
                return None
        if size <= lower:
            return None
        if self.trials[-1].batch_size > size:
            self._reduce(self.trials[-1].batch_size, size)
        return size

    def _limit(self, upper: int | None) -> int:
        limits = [LARGEST_BATCH, self.requested, None if upper is None else upper - 1]
        return min(limit for limit in limits if limit is not None)

    def _reduce(self, from_size: int, to_size: int) -> None:
        trial = next((trial for trial in reversed(self.trials) if trial.batch_size == from_size), None)
        if trial is None:
            why, detail = "it is not expected to fit", None
        elif trial.verdict == "fits":
            why, detail = "less memory is available now", None
        else:
            why, detail = trial.verdict, trial.detail
        self.reductions.append(Reduction(from_batch=from_size, to_batch=to_size, reason=why, detail=detail))
        self.on_event(f"batch {from_size} reduced to {to_size}: {why}")

    def _tell_reductions(self, chosen: int) -> None:
        """Whatever larger batch was tried or asked for: it is said that the choice is less, and why."""
        above = max(self.trials[-1].batch_size, *self._ran)
        if above > chosen and (not self.reductions or self.reductions[-1].to_batch != chosen):
            self._reduce(above, chosen)
        told = {chosen, *(reduction.from_batch for reduction in self.reductions)}
        if self.requested is not None and self.requested not in told:
            self._reduce(self.requested, chosen)

    def _was_expected_to_fit(self, size: int) -> bool:
        expected = self._estimate(size)
        return expected is not None and expected <= self.usable_bytes

    def _estimate(self, size: int) -> int | None:
        peaks = {ran: result.peak_bytes for ran, result in self._ran.items() if result.peak_bytes is not None}
        return expected_bytes(size, peaks, self.predict)

    def _largest_expected(self, lower: int, limit: int, share: float) -> int:
        within = int(self.usable_bytes * share)
        return largest_expected(lower, limit, within, self._estimate)

    def _why(self, chosen: int) -> str:
        if self.requested == chosen:
            return "the requested batch ran and fits"
        upper = self._upper()
        if upper is not None and upper == chosen + 1:
            return f"batch {upper} does not fit"
        if upper is not None and upper in self._unsupported:
            return f"batch {upper} is more than the kernels take"
        if len(self.trials) >= self.max_trials or not self.may_go_on():
            return f"the largest that ran and fits in {len(self.trials)} trials"
        return "the largest that ran and fits; what may fit beyond it is less than 5 % more"

    def _why_nothing_fits(self) -> str:
        smallest = min(self.trials, key=lambda trial: trial.batch_size)
        detail = smallest.detail or "no longer fits the memory that is left"
        return f"batch {smallest.batch_size} does not fit: {detail}"

    def _result(
        self, outcome: SearchOutcome, chosen: int | None, reason: str, failure: Failure | None = None
    ) -> SearchResult:
        unsupported = None
        if self._unsupported:
            refused = min(self._unsupported)
            works = max((size for size in self._ran if size < refused), default=None)
            unsupported = UnsupportedBatch(
                batch_size=refused, largest_that_works=works, detail=self._unsupported[refused]
            )
        return SearchResult(
            source="measured",
            outcome=outcome,
            batch_size=chosen,
            reason=reason,
            requested=self.requested,
            largest_that_ran=max(self._ran, default=None),
            headroom_share=float(self.headroom_share),
            memory=self.memory,
            available_bytes=self._available_bytes,
            usable_bytes=self.usable_bytes,
            trials=self.trials,
            steps_run=sum(trial.steps_run for trial in self.trials),
            reductions=self.reductions,
            budget_changes=self.budget_changes,
            unsupported=unsupported,
            failure=None if failure is None else SearchFailure(error=failure.error, detail=failure.detail),
            held_by_others_bytes=None,
            measurements=self.measurements,
        )


def search_batch(
    probe: Callable[[int], ProbeResult],
    predict: Callable[[int], int] | None,
    read_memory: Callable[[], MemoryNow],
    **options: Any,
) -> SearchResult:
    """The largest batch that ran within the memory there is; options as `BatchSearch` takes them."""
    return BatchSearch(probe, predict, read_memory, **options).run()
