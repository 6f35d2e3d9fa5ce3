"""Time to accuracy: every method of the part on the same task, on a slow link.

    python -m lsdl_lib.communication.studies.time_to_accuracy tuning
    python -m lsdl_lib.communication.studies.time_to_accuracy buckets
    python -m lsdl_lib.communication.studies.time_to_accuracy prediction
    python -m lsdl_lib.communication.studies.time_to_accuracy run
    python -m lsdl_lib.communication.studies.time_to_accuracy network

First learning rates and the baseline's buckets are tuned, then each method's seconds a step are
predicted by formula; ``run`` trains on the virtual clock, with 4 and 8 ranks, and ``network`` on a
link that the kernel limits, by the wall clock. ``registration.toml`` holds what was fixed before
all five.
"""

from lsdl_lib.communication.studies.time_to_accuracy.registration import digest, registration

__all__ = ["digest", "registration"]
