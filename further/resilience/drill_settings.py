"""The settings of the workshop, and the fault to inject."""

from dataclasses import dataclass

from workshop.record.errors import InputError
from workshop.settings.settings import Settings, choice, positive, setting

DONE_HERE = ("rank_killed", "preemption", "checkpoint_truncated", "shard_missing", "logger_killed")
# The training waits for you to inject these.
DONE_OUTSIDE = ("time_limit", "node_off", "cancelled")
# Injected before the start or where the run writes: these only name the run, so that Table 22 finds it.
NO_FAULT = ("none", "disk_full", "log_disk_full", "port_taken", "two_jobs", "code_edited")


@dataclass(frozen=True, kw_only=True)
class DrillSettings(Settings):
    """FAULT happens after step FAULT_STEP."""

    fault: str = setting(choice(*NO_FAULT, *DONE_HERE, *DONE_OUTSIDE), "none")
    fault_step: int = setting(positive)

    def check(self) -> None:
        super().check()
        if not self.saves_often:
            raise InputError(f"SAVE={self.save}: a training without checkpoints loses all; expected epoch or steps")
        if self.fault not in NO_FAULT and 0 < self.max_steps <= self.fault_step:
            raise InputError(
                f"FAULT_STEP={self.fault_step}: the training ends after MAX_STEPS={self.max_steps}, before "
                f"FAULT={self.fault} comes; expected a smaller FAULT_STEP"
            )
