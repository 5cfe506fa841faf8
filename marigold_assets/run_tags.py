"""The tags by which Dagster says what a run is."""

from typing import Final

PARTITION_TAG: Final = "dagster/partition"
RANGE_START_TAG: Final = "dagster/asset_partition_range_start"
RANGE_END_TAG: Final = "dagster/asset_partition_range_end"
BACKFILL_TAG: Final = "dagster/backfill"
"""Has every run that a backfill launches. Dagster takes it off where somebody executes one again after its end."""
PARENT_BACKFILL_TAG: Final = "dagster/parent_backfill_id"
"""Has a backfill that somebody has launched again by hand: it inherits the tags of the other, and is another one."""
PRIORITY_TAG: Final = "dagster/priority"
ROOT_RUN_TAG: Final = "dagster/root_run_id"
"""Has every run that executes another one again, whoever wants it."""
RETRY_NUMBER_TAG: Final = "dagster/retry_number"
"""Has every retry of Dagster's own. It is left out where somebody executes a run again."""
WILL_RETRY_TAG: Final = "dagster/will_retry"
WILL_RETRY_ON_FAILURE_TAG: Final = "dagster/retry_on_asset_or_op_failure"
MAX_RETRIES_TAG: Final = "dagster/max_retries"
