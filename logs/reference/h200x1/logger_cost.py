"""What the memory loggers cost: one training, the loggers switched on and off in turn, step times compared.

Within one run, so that neither the machine's mood nor the start-up differs between the two sides. Run it where the
exercise runs, with its settings in the environment; NUM_EPOCHS must be large enough to last:

    NUM_EPOCHS=100 python logs/reference/h200x1/logger_cost.py --windows 12 --window-s 10

Prints the median step time with and without loggers for each pair of windows, and the median of the ratios.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
COMMANDS = {  # as in the launchers
    "GPU_LOGGER": "nvidia-smi --query-gpu=timestamp,index,name,memory.used,memory.total,utilization.gpu,power.draw "
    "--format=csv -lms 1000",
    "CPU_LOGGER": "psrecord --include-children --interval 1",
    "PSS_LOGGER": "python -m workshop.measure.memory_logger",
}
LOGGERS = (
    "import sys, time; from workshop.job.node import start_loggers; start_loggers(int(sys.argv[1])); time.sleep(1e9)"
)


def step_times_s(run_dir: Path) -> list[float]:
    """Step times so far, from steps.csv; the last line may be half written and is left out."""
    path = run_dir / "steps.csv"
    lines = path.read_text().splitlines()[1:-1] if path.exists() else []
    return [float(line.split(",")[1]) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=12, help="even number of windows, off and on in turn")
    parser.add_argument("--window-s", type=float, default=10.0)
    parser.add_argument("--warmup-steps", type=int, default=10)
    options = parser.parse_args()

    run_dir = Path(tempfile.mkdtemp(prefix="logger-cost-"))
    environ = os.environ | {"REPO": str(REPO), "PYTHONPATH": f"{REPO}:{os.environ.get('PYTHONPATH', '')}"}
    environ |= {"RUN_DIR": str(run_dir), "SAVE": "no", "GENERATE_SIZE": "0", "EVAL_SIZE": "1", **COMMANDS}
    with (run_dir / "train.out").open("w") as output:
        command = ["bash", "-c", "source ./env_vars.sh && exec python train.py"]
        training = subprocess.Popen(command, cwd=REPO / "baseline", env=environ, stdout=output, stderr=output)
    try:
        while len(step_times_s(run_dir)) < options.warmup_steps:
            if training.poll() is not None:
                raise SystemExit(f"the training ended early:\n{(run_dir / 'train.out').read_text()[-2000:]}")
            time.sleep(0.2)
        medians_ms = []
        for window in range(options.windows):
            loggers = None
            if window % 2:
                loggers = subprocess.Popen([sys.executable, "-c", LOGGERS, str(training.pid)], env=environ)
                time.sleep(2)  # their own start is not what runs for hours
            first = len(step_times_s(run_dir))
            time.sleep(options.window_s)
            medians_ms.append(1000 * statistics.median(step_times_s(run_dir)[first + 1 :]))
            if loggers:
                loggers.terminate()
                loggers.wait()
                time.sleep(1)
    finally:
        training.kill()
    off, on = medians_ms[::2], medians_ms[1::2]
    ratios = [b / a for a, b in zip(off, on, strict=True)]
    print("| pair | median step without loggers (ms) | with loggers (ms) | ratio |\n|---|---|---|---|")
    for pair, (a, b, ratio) in enumerate(zip(off, on, ratios, strict=True), start=1):
        print(f"| {pair} | {a:.2f} | {b:.2f} | {ratio:.4f} |")
    print(f"median ratio {statistics.median(ratios):.4f}, range {min(ratios):.4f} to {max(ratios):.4f}")


if __name__ == "__main__":
    main()
