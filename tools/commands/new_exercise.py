"""Make the folder of a new exercise from the baseline, ready to run, and say what is left to do."""

import argparse
import re
from pathlib import Path
from string import Template

from tools.errors import InputError
from tools.plan import cost
from tools.plan.gpus import GPUS
from tools.submit.submissions import read
from tools.tables.repository import ROOT, exercises, table_definitions

_BASELINE = ROOT / "baseline"
_README, _ANSWERS = (Path(__file__).with_name(f"new_exercise{which}.md") for which in ("", "_answers"))
_RESULTS = """# Exercise {number} · Results

For engineers: reference figures and how they were made. The lesson is in [README.md](README.md).

Nobody has made reference runs yet: not measured.
"""
_STEPS = """next, as CONTRIBUTING.md says (Add an exercise); try it first:
  source tiny.env && bash {name}/{launcher} && python -m tools fill {name} --tiny"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the folder: small letters, digits, - and _")


def run(arguments: argparse.Namespace) -> int:
    name = arguments.name
    folder, answers = ROOT / name, ROOT / "instructor" / "answers" / f"{name}.md"
    _check(name, folder, answers)
    launcher = f"{name.replace('-', '_')}.slurm"
    number, table = _next_numbers()
    files = {
        "train.py": _train(name, launcher, number),
        "env_vars.sh": _env_vars(name),
        launcher: _launcher(name, launcher, number),
        "submit.txt": f"# The runs of this exercise's tables: python -m tools submit {name}\n{launcher}  # must-do\n",
        "tiny.txt": f"# The tiny runs of `rehearse`\n{launcher}\n",
        "tables.toml": f"# What the tables ask for, as CONTRIBUTING.md says\n[[tables]]\n{table} = {{}}\n",
        "RESULTS.md": _RESULTS.format(number=number),
    }
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / launcher).chmod((_BASELINE / "baseline.slurm").stat().st_mode)
    price = cost.table(read(folder / "submit.txt", {}), GPUS["h200"])
    values = {"number": number, "name": name, "launcher": launcher, "table": table, "cost": price}
    for template, path in ((_README, folder / "README.md"), (_ANSWERS, answers)):
        path.write_text(Template(template.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
    print(f"made {name}/: README.md, {', '.join(files)}")
    print(f"made {answers.relative_to(ROOT)}")
    print(_STEPS.format(name=name, launcher=launcher))
    return 0


def _check(name: str, *made: Path) -> None:
    """Raises InputError for a name that cannot be an exercise's, or whose files are there."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]{1,39}", name) or name in ("all", "together"):  # words of `plan`
        raise InputError(
            f"new-exercise {name!r}: expected 2 to 40 small letters, digits, - and _, with a letter first, not all or "
            "together; for example gradient-clipping"
        )
    for path in made:
        if path.exists():
            raise InputError(f"new-exercise {name}: {path} exists already; expected a new name")


def _next_numbers() -> tuple[int, int]:
    """Of the exercise, as in the READMEs' titles, and of its table."""
    titles = (re.match(r"# Exercise (\d+) ", (path / "README.md").read_text(encoding="utf-8")) for path in exercises())
    tables = (re.match(r"\d+", number) for number in table_definitions())
    return 1 + max(int(title[1]) for title in titles if title), 1 + max(int(table[0]) for table in tables)


def _train(name: str, launcher: str, number: int) -> str:
    """The baseline's with a docstring of its own."""
    text = _baseline("train.py").replace("baseline/baseline.slurm", f"{name}/{launcher}")
    text = re.sub("The settings come .*", f"Compare with exercise 1: diff baseline/train.py {name}/train.py", text)
    return re.sub("Exercise 1, .*", f"Exercise {number}, {name}: (what it is about, in one sentence).", text)


def _env_vars(name: str) -> str:
    """The baseline's settings with the name of the experiment as what the exercise changes."""
    settings, _, _ = _baseline("env_vars.sh").partition("\n# ---- More settings")
    experiment = 'export EXPERIMENT_NAME="${EXPERIMENT_NAME:-baseline}"\n'
    changed = f"# ---- What this exercise changes ----\n{experiment.replace('baseline', name)}"
    settings = settings.replace(experiment, f"{changed}\n# ---- As in the baseline ----\n")
    return settings.replace("Settings of the baseline.", f"Settings of {name}.")


def _launcher(name: str, launcher: str, number: int) -> str:
    text = _baseline("baseline.slurm").replace("baseline/baseline.slurm", f"{name}/{launcher}")
    text = text.replace("--job-name=baseline", f"--job-name={name}").replace('/baseline"', f'/{name}"')
    return re.sub(r"^# Exercise 1, .*", f"# Exercise {number}, {name}: one GPU.", text, flags=re.MULTILINE)


def _baseline(file: str) -> str:
    return (_BASELINE / file).read_text(encoding="utf-8")
