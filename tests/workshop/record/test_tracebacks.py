"""The exception that ends a traceback is the reason, whatever its name is and whoever writes between its lines."""

from pathlib import Path

import pytest

from tests.workshop.record.test_causes import DEEPSPEED as ENDED
from tests.workshop.record.test_causes import of_lines

BEGIN = "Traceback (most recent call last):"
TRACEBACK = [BEGIN, '  File "/w/train.py", line 61, in <module>', "    main()"]
DEEPSPEED = ENDED.format(1)
HANDLED = "During handling of the above exception, another exception occurred:"
CAUSED = "The above exception was the direct cause of the following exception:"
INTERRUPTED = "KeyboardInterrupt"
BETWEEN = """  4%|▍  | 17/387 [05:25<1:57:56, 19.13s/it]
/w/x.py:12: UserWarning: slow
  warnings.warn(
Warning: x
[2026-07-26 15:19:24,960] [WARNING] [x.py:3] slow
[rank0]: main()
node4: loading: x
{'loss': 0.5}""".splitlines()


def of_rank(number: int, *lines: str) -> list[str]:
    return [f"[rank{number}]: {line}" for line in lines]


def in_box(indent: str, *lines: str) -> list[str]:
    return [f"{indent}| {line}" for line in lines]


GROUP = [f"  + Exception Group {BEGIN}", *in_box("  ", *TRACEBACK[1:], "ExceptionGroup: unhandled (1 sub-exception)")]
GROUP += ["  +-+---------------- 1 ----------------", *in_box("    ", *TRACEBACK)]
# The lines of an output, and the reason.
OUTPUTS = {
    "script": ([*TRACEBACK, "main.<locals>.Diverged: the loss is nan"], ""),
    "no text": ([*TRACEBACK, "torch._dynamo.exc.Unsupported:"], ""),
    "bar": ([*BETWEEN[:1], f"{BETWEEN[0]}{BEGIN}", *TRACEBACK[1:], f"{BETWEEN[0]}zmq.Again: x"], "zmq.Again: x"),
    "rich": (["╭──── Traceback (most recent call last) ────╮", "│ main() │", "╰────╯", "ReadTimeout: 10 s"], ""),
    "worker": ([*TRACEBACK, "zmq.Again: Caught Again in DataLoader worker process 0.", f"Original {BEGIN}",
                *TRACEBACK[1:], "zmq.Again: x"], ""),
    "group": (of_rank(1, *GROUP, "    | httpx.ReadTimeout: timed out"),
              "ExceptionGroup: unhandled (1 sub-exception); httpx.ReadTimeout: timed out"),
    "caused": ([*TRACEBACK, "httpcore.ReadTimeout: 1", "", CAUSED, "", *TRACEBACK, "httpx.ReadTimeout: 2"],
               "httpcore.ReadTimeout: 1; httpx.ReadTimeout: 2"),
    "handled": (of_rank(1, *TRACEBACK, "KeyError: 3", "", HANDLED, "", *TRACEBACK, "zmq.error.Again: x"), ""),
    "told to end": ([*TRACEBACK, "KeyError: 3", "", HANDLED, "", *TRACEBACK, INTERRUPTED],
                    "KeyError: 3; KeyboardInterrupt"),
    "spawned": ([*TRACEBACK, "torch.ProcessRaisedException: ", "", "-- Process 1 terminated with the following error:",
                 *TRACEBACK, "zmq.Again: x"], "torch.ProcessRaisedException:; zmq.Again: x"),
    "ignored": (["Exception ignored in: <function f at 0x7f>", *TRACEBACK, "zmq.error.Again: x", DEEPSPEED], DEEPSPEED),
    "logger's": (["--- Logging error ---", *TRACEBACK, "TypeError: %s", *TRACEBACK, "queue.Empty"], "queue.Empty"),
    "logged": (["2026-03-02 10:00:00,000 - root - ERROR - no upload", *TRACEBACK, "ValueError: x", "{'loss': 0.5}",
                *TRACEBACK, "socket.timeout: timed out"], ""),
    "thread": (["Exception in thread Thread-3:", *TRACEBACK, "ValueError: x", *TRACEBACK, "StopIteration"], ""),
    "announced": ([*TRACEBACK, "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:", "zmq.Error: x"],
                  "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised: zmq.Error: x"),
    "interrupted": ([*TRACEBACK, INTERRUPTED, DEEPSPEED], DEEPSPEED),
    "warning raised": (["Exception ignored in: <function f at 0x7f>", *TRACEBACK, "ResourceWarning: x", *TRACEBACK,
                        "DeprecationWarning: y"], "DeprecationWarning: y"),
    "not started": (["slurmstepd: error: container_p_join: open failed for /x: No such file", DEEPSPEED], DEEPSPEED),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTPUTS)
def test_exception_is_known_by_its_traceback_and_not_by_its_name(tmp_path: Path, name: str) -> None:
    lines, reason = OUTPUTS[name]
    assert of_lines(tmp_path, *lines, DEEPSPEED).text.endswith(reason or lines[-1].removeprefix("[rank1]:     | "))


@pytest.mark.parametrize("line", BETWEEN)
def test_line_of_somebody_else_does_not_end_the_search(tmp_path: Path, line: str) -> None:
    for prefix in ("", "[rank1]: "):
        lines = [f"{prefix}{own}" for own in (*TRACEBACK, "pyarrow.lib.ArrowInvalid: row 3")]
        assert of_lines(tmp_path, *lines[:-1], line, lines[-1], DEEPSPEED).text == lines[-1]


@pytest.mark.parametrize(
    "prefix",
    ["[pod/train-0/trainer] ", "trainer_1  | ", "node7\t", "Nov 29 20:00:0{} node7 python[47]: ", "10:00:0{} E "],
)
def test_prefix_that_nobody_knew_is_what_the_lines_of_a_traceback_have_in_common(tmp_path: Path, prefix: str) -> None:
    lines = [prefix.format(number) + line for number, line in enumerate([*TRACEBACK, "lib.Stop: no data"])]
    other = [line.replace("7", "8").replace("train", "eval") for line in lines]  # of another process, between them
    both = (line for pair in zip(lines, other, strict=True) for line in pair)
    assert of_lines(tmp_path, *both).text == "lib.Stop: no data"
