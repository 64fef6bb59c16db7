"""Make the folder of a new exercise from the baseline, ready to run, and say what is left to do."""

import argparse
import contextlib
import re
import shutil
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
    with contextlib.ExitStack() as on_failure:  # half an exercise would be in everybody's tables, and in the way
        on_failure.callback(shutil.rmtree, folder)
        on_failure.callback(answers.unlink, missing_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / launcher).chmod((_BASELINE / "baseline.slurm").stat().st_mode)
        price = cost.table(read(folder / "submit.txt", {}), GPUS["h200"])
        values = {"number": number, "name": name, "launcher": launcher, "table": table, "cost": price}
        for template, path in ((_README, folder / "README.md"), (_ANSWERS, answers)):
            path.write_text(Template(template.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
        on_failure.pop_all()
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
    docstring = f'''"""Exercise {number}, {name}: (what it is about, in one sentence).

On a cluster:         sbatch {name}/{launcher}
Without SLURM:        bash {name}/{launcher}
On a laptop, no GPU:  source tiny.env && bash {name}/{launcher}

Compare with exercise 1: diff baseline/train.py {name}/train.py
"""
'''
    _, _, code = _baseline("train.py").removeprefix('"""').partition('"""\n')
    return docstring + code


def _env_vars(name: str) -> str:
    """The baseline's settings: the name of the experiment first, as what the exercise changes."""
    settings, _, _ = _baseline("env_vars.sh").partition("\n# ---- More settings")
    experiment = 'export EXPERIMENT_NAME="${EXPERIMENT_NAME:-baseline}"\n'
    head, _, rest = settings.replace("Settings of the baseline.", f"Settings of {name}.").partition("\n\n")
    changed = f"# ---- What this exercise changes ----\n{experiment.replace('baseline', name)}"
    return f"{head}\n\n{changed}\n# ---- As in the baseline ----\n{rest.replace(experiment, '')}"


def _launcher(name: str, launcher: str, number: int) -> str:
    text = _baseline("baseline.slurm").replace("baseline/baseline.slurm", f"{name}/{launcher}")
    text = text.replace("--job-name=baseline", f"--job-name={name}").replace('/baseline"', f'/{name}"')
    return re.sub(r"^# Exercise 1, .*", f"# Exercise {number}, {name}: one GPU.", text, flags=re.MULTILINE)


def _baseline(file: str) -> str:
    return (_BASELINE / file).read_text(encoding="utf-8")
