from tests.launch.conftest import no_rank_left

__all__ = ["no_rank_left"]
