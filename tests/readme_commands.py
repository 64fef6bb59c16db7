"""The shell commands of the documents, and how each is run by a test."""

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from tests.launching import REPO
from workshop.record.exercises import find_exercise

_PAGES = [path for pattern in ("*.md", "*/*.md", "further/*/*.md", "instructor/*/*.md") for path in REPO.glob(pattern)]
DOCUMENTS = sorted(path for path in _PAGES if not path.name.startswith("my_results"))
# What cannot run here as it stands (no container engine, no hub, or it is this suite); the tests beside run it.
RUN_ELSEWHERE = (
    r"docker build|apptainer",  # no container engine here
    r"python -m workshop\.data\.prefetch",  # tests/workshop: needs the hub
    r"conda (env|activate)|python -c .import torch",  # no conda here
    r"python -m workshop\.kernels\.operators|sbatch .*make operators",  # tests/workshop/kernels/test_operators.py
    r"sbatch .*tools doctor",  # tests/tools/commands/test_doctor_command.py: here, not in a job
    r"python -m workshop\.settings",  # tests/workshop/test_settings.py
    r"python -m tests\.planner_questions",  # a benchmark: ten minutes
    r"make (quickstart|test|rehearse|install)|^source \.venv",  # Makefile: this very suite, and a bare machine
    r"python -m tools submit .*--resume|^python train\.py$",  # tests/further/resilience/test_drill_launcher.py
    r"python -m further\.resilience\.convert",  # tests/further/resilience/test_convert.py
    r"bash further/lora/quality\.sh",  # tests/further/lora
    r"git (restore|clean)",  # tests/test_installation.py: in a repository of its own
    r"python -m tools profile",  # tests/tools/commands/test_profile_command.py: needs a run with PROFILE
    r"python -m tools report",  # tests/test_chapters.py: with --check, a quarter of a minute: once is enough
    r"python -m pytest further/by-hand/holes",  # tests/further/by_hand/test_holes.py
    r"(cp|mv|sed -i) .*my-idea",  # tests/tools/test_contributing.py
)
REFERENCE = "logs/reference"
STANDS_FOR = {  # what a participant would have on disk by then, and questions with fewer answers
    "watch -n 5 ": "",  # until Ctrl-C
    "llama-3.1-8b --gpus 8 --length 65536": "tiny-llama --gpus 2 --length 8192 --batch 1",
    "llama-3.1-8b --gpus 16 --nodes 2": "tiny-llama --gpus 2 --nodes 2",
    "--length 131072": "--length 8192",
    "logs/parity/*/": f"{REFERENCE}/h200x2/deepspeed-multi-gpu/*/",
    "--logs logs/parity": f"--logs {REFERENCE}/h200x2",
    "<run>": min((REPO / REFERENCE / "h200x1/baseline").iterdir()).name,
    "COMMAND": "fill",
    "source cluster.env && source $WORKSHOP_VENV/": "source cluster.env.example && source .venv/",
    "my_results/*.md": "my_results_baseline.md",  # one participant's
    "check my_results_choose": "check my_results_baseline",
    "--blank > my_results": "--blank > blank",  # which nobody fills in here
}
_COMMAND = r"\(?(?:[A-Z_0-9]+=\S+ +)*(?:source \S+ && )?(?:[A-Z_0-9]+=\S+ +)*"
_STARTS = r"(?:sbatch|bash|source|python|make|cp|for|export|unset|diff|docker|apptainer)\b"


@dataclass(frozen=True)
class Block:
    """Attributes: document, line: where it starts; lines: its commands, without comments."""

    document: Path
    line: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document.relative_to(REPO)}:{self.line}"


def blocks(document: Path) -> list[Block]:
    """Indented or fenced blocks of commands, and commands in the text as blocks of one line."""
    found: list[Block] = []
    for token in MarkdownIt().parse(document.read_text()):
        if token.type in ("code_block", "fence") and token.info in ("", "sh", "bash", "shell", "console"):
            lines = [re.sub(r"(^| {2,})#.*", "", line).strip() for line in token.content.splitlines()]
            if any(map(is_command, lines)):
                found.append(Block(document, token.map[0] + 1, tuple(filter(None, lines))))
        for words in (part.content for part in token.children or [] if part.type == "code_inline"):
            if re.search(r"\w ", words) and is_command(words) and not re.search(r"…|^\w+ --?[\w=-]+$", words):
                found.append(Block(document, token.map[0] + 1, (words,)))
    return found


def is_command(line: str) -> bool:
    return re.match(_COMMAND + _STARTS, line) is not None


def all_blocks() -> list[Block]:
    return [block for document in DOCUMENTS for block in blocks(document)]


def launchers(line: str) -> list[str]:
    return re.findall(r"(?:[\w-]+/)+\w+\.slurm", line)


def submissions(block: Block) -> list[str]:
    return [line for line in block.lines if re.search(r"\bsbatch ", line)]


def runnable(line: str) -> str:
    """What to run of a command here: itself on the reference logs, a list of what it would do, or `:` (run elsewhere).

    Raises:
        LookupError: no rule is about the command.
    """
    for words, here in STANDS_FOR.items():
        line = line.replace(words, here)
    if any(re.search(pattern, line) for pattern in RUN_ELSEWHERE):
        return ":"
    if launchers(line) and not line.startswith("python"):
        if missing := [name for name in launchers(line) if not (REPO / name).exists()]:
            raise LookupError(f"there is no launcher {missing[0]}")
        return ":"  # the line itself is parsed by bash, or submitted to SLURM
    if found := re.search(r"python -m tools (\w+)(.*)", line):
        return line[: found.start()] + f"python -m tools {found[1]}{_options(found[1], found[2])}"
    if line.startswith("diff "):
        return f"{line} || [ $? = 1 ]"
    if re.match(r"make [\w-]+$", line):
        return line.replace("make", "make -n")
    if re.match(r"(python benchmark/grid\.py|cp|source|export|unset|for) ?", line):
        return line
    raise LookupError("no rule in tests/readme_commands.py runs it")


def _options(command: str, words: str) -> str:
    if command == "submit":
        before, dashes, after = words.partition(" -- ")
        bracket = ")" * before.endswith(")")
        local = "" if "--local" in before else " --local"
        return f"{before.removesuffix(')')} --dry-run{local}{bracket}{dashes}{after}"
    if command == "doctor":  # what it finds depends on the machine
        return " > found || [ $? = 1 ]" if not words else " --help"
    if command == "page":  # of all reference runs: half a minute
        return " --help"
    if command in ("fill", "plot", "runs", "check") and not re.search(f"--logs|--explain|--help|{REFERENCE}/", words):
        exercise = next((name for name in words.split() if find_exercise(name, "*", REPO)), "baseline")
        words = words or f" {exercise}"
        if "--tiny" in words:
            return words  # the participant's own run: tests/test_readmes.py
        hosts = sorted(folder.parent.name for folder in (REPO / REFERENCE).glob(f"*/{exercise}"))
        hosts = [host for host in hosts if not host.endswith("-unseen")]  # the planner's, in no table
        logs = "".join(f" --logs {REFERENCE}/{host}" for host in hosts) or f" --logs {REFERENCE}"
        words, arrow, file = words.partition(" > ")
        return f"{words}{logs}{arrow}{file}" + ("" if hosts else " || [ $? = 3 ]")  # no runs
    return words
