"""What else the machine did while a benchmark ran."""

import os
import resource
import time
from pathlib import Path


def jiffies() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq and stolen time of all processors."""
    line = Path("/proc/stat").read_text().splitlines()[0]
    return [int(word) for word in line.split()[1:9]]


def own_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class MachineState:
    """From its making to summary()."""

    def __init__(self) -> None:
        self.jiffies, self.own, self.start = jiffies(), own_seconds(), time.time()

    def summary(self) -> dict[str, float]:
        """Shares are percentages of all processors' time."""
        passed = [after - before for before, after in zip(self.jiffies, jiffies(), strict=True)]
        user, nice, system, _, _, irq, softirq, stolen = passed
        all_time = max(1, sum(passed))
        own = (own_seconds() - self.own) * os.sysconf("SC_CLK_TCK")
        others = max(0.0, user + nice + system + irq + softirq - own)
        return {
            "load_average": round(os.getloadavg()[0], 2),
            "stolen_percent": round(100 * stolen / all_time, 2),
            "other_processes_percent": round(100 * others / all_time, 2),
            "minutes": round((time.time() - self.start) / 60, 1),
        }

    def text(self) -> str:
        state = self.summary()
        return (
            f"load average {state['load_average']}, stolen {state['stolen_percent']} %, other"
            f" processes {state['other_processes_percent']} % of the processors,"
            f" {state['minutes']} minutes"
        )
