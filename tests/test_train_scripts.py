"""A chapter is a script one can read aloud, and a diff to the one before: a copy that drifts would spoil the lesson."""

import ast
import difflib
import re
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

import pytest

from custom_model.settings import CustomSettings
from workshop.settings import Settings

REPO = Path(__file__).parents[1]


@dataclass(frozen=True)
class Chapter:
    """Attributes: before: the chapter it is compared with; most: lines of code removed and added since; lesson: what it
    calls or names and the one before does not.
    """

    before: str | None
    most: int
    lesson: tuple[str, ...]


TRAINERS = [path.parent.name for path in REPO.glob("*/train.py") if "Trainer(" in path.read_text()]
CHAPTERS = {
    # An exercise that is not described here is compared with the baseline.
    **{name: Chapter("baseline", 35, ()) for name in TRAINERS},
    "baseline": Chapter(None, 0, ()),
    "deepspeed-single-gpu": Chapter("baseline", 7, ("deepspeed=", "prepare_operators", "join_gloo_ranks")),
    "deepspeed-multi-gpu": Chapter("deepspeed-single-gpu", 0, ()),
    "deepspeed-zero3-offload": Chapter("deepspeed-multi-gpu", 9, ("argparse.ArgumentParser", "OffloadCheck")),
    "fsdp": Chapter("baseline", 13, ("fsdp=", "fsdp_config=", "parallelism_config=", "shard_on_cpu")),
    "custom_model": Chapter("fsdp", 20, ("build_model", "transformer_layer_cls_to_wrap")),
    "benchmark": Chapter("deepspeed-single-gpu", 4, ("load_text",)),
    "resilience": Chapter("baseline", 19, ("Drill(settings)", "sharding_arguments", "save_whole_model")),
    "speed-ladder": Chapter(
        "baseline",
        34,
        (
            *(
                "fast_models.pack",
                "fast_models.use_attention",
                "fast_models.use_loss",
                "fast_models.use_residual_dtype",
            ),
            *(
                "fast_models.compile_blocks",
                "fast_models.LabelledOnly",
                "dataloader_num_workers=",
                "sharding_arguments",
            ),
        ),
    ),
}


def script(chapter: str) -> Path:
    return REPO / chapter / "train.py"


def code_lines(path: Path) -> list[str]:
    """The script's lines without docstring and comments, as `diff` compares them."""
    text = path.read_text()
    below = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    lines = (line.split("  # ")[0].rstrip() for line in below if not line.lstrip().startswith("#"))
    return [line for line in lines if line]


def test_every_chapter_with_a_trainer_is_walked() -> None:
    assert set(TRAINERS) == set(CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_script_introduces_itself_as_its_own_exercise(chapter: str) -> None:
    assert not script(chapter).is_symlink()
    docstring = ast.get_docstring(ast.parse(script(chapter).read_text()))
    assert re.match(r"Exercise \d", docstring)
    started = re.findall(r"\b(?:bash|sbatch)(?: -\S+)* (\S+)/(\S+\.slurm)", docstring)
    assert {folder for folder, _ in started} == {chapter}
    assert all((REPO / folder / launcher).is_file() for folder, launcher in started)


@pytest.mark.parametrize("chapter", [name for name, chapter in CHAPTERS.items() if chapter.before])
def test_chapter_differs_from_the_one_before_by_its_lesson_only(chapter: str) -> None:
    about = CHAPTERS[chapter]
    before, after = code_lines(script(about.before)), code_lines(script(chapter))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert len(changed) <= about.most, "\n".join(changed)
    added = "\n".join(line for line in changed if line[0] == "+")
    assert [call for call in about.lesson if call not in added] == []


def test_many_gpus_have_the_configurations_of_one() -> None:
    for folder, configs in (("deepspeed-single-gpu", "ds_configs"), ("fsdp", "fsdp_configs")):
        for other in ("deepspeed-multi-gpu", "benchmark", "speed-ladder"):
            if (REPO / other / configs).exists():
                assert (REPO / other / configs).resolve() == (REPO / folder / configs).resolve()


# env_vars.sh

CHANGED, REST = "# ---- What this exercise changes ----", "# ---- As in the baseline ----"
EXPORT = re.compile(r'^export (\w+)="\$\{\1:-(.*)\}"$', re.MULTILINE)
OWN_MODEL = {"custom_model": {"MODEL_NAME", "MODEL_INIT"}}  # whose sizes are settings instead
BASELINE = dict(EXPORT.findall((REPO / "baseline/env_vars.sh").read_text()))
WITH_SETTINGS = [name for name in CHAPTERS if name != "baseline"]


def defaults() -> dict[str, str]:
    """The settings' default values, as env_vars.sh writes them."""
    values = {item.name.upper(): item.default for item in fields(Settings) if item.default is not MISSING}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def test_every_setting_and_variable_is_where_a_participant_looks_for_it() -> None:
    """baseline/env_vars.sh shows the code's default of the settings that it does not export."""
    shown = re.findall(r"^#export (\w+)=(\S*) ", (REPO / "baseline/env_vars.sh").read_text(), re.MULTILINE)
    code = defaults() | {"GPU_LOG_INTERVAL_MS": "1000"}
    assert dict(shown) == {name: code[name] for name in code.keys() - BASELINE.keys() - {"CONFIG"}}
    site = (REPO / "cluster.env.example").read_text()
    assert [
        name for name in ("WORKSHOP_VENV", "TORCH_EXTENSIONS_DIR", "MAX_JOBS") if f"#export {name}=" not in site
    ] == []
    assert "FABRIC_TIMEOUT_S=600" in (REPO / "custom_model/env_vars.sh").read_text()


@pytest.mark.parametrize("chapter", WITH_SETTINGS)
def test_what_a_chapter_changes_comes_first_and_the_rest_is_the_baselines(chapter: str) -> None:
    text = (REPO / chapter / "env_vars.sh").read_text()
    first, second = text.index(CHANGED), text.index(REST)
    assert not EXPORT.search(text[:first])
    changed, rest = dict(EXPORT.findall(text[first:second])), dict(EXPORT.findall(text[second:]))
    assert rest == {name: BASELINE[name] for name in rest}
    assert rest.keys() | changed.keys() | OWN_MODEL.get(chapter, set()) >= BASELINE.keys()
    assert not rest.keys() & changed.keys()
    assert [name for name, value in changed.items() if BASELINE.get(name) == value] == [], "not changed at all"


def test_default_that_the_code_has_too_is_the_same_in_env_vars() -> None:
    code = defaults()
    assert {name: value for name, value in BASELINE.items() if name in code} == {
        name: code[name] for name in BASELINE if name in code
    }


# Launchers

QUERY = "nvidia-smi --query-gpu=timestamp,index,name,memory.used,memory.total,utilization.gpu,power.draw --format=csv"
LAUNCHERS = sorted(REPO.glob("*/*.slurm"))


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_launcher_shows_the_loggers_and_the_training_it_starts(launcher: Path) -> None:
    folder, text = launcher.parent.name, launcher.read_text()
    assert f"{folder}/{launcher.name}" in text, "no command line of its own"
    assert f'|| cd "${{SHARDLAB:-$SLURM_SUBMIT_DIR}}/{folder}" 2>/dev/null || ' in text
    loggers = re.findall(r"^log_(?:gpus|cpus|pss) (.*?)(?: \\)?$", text, re.MULTILINE)
    assert loggers == [QUERY, "psrecord --include-children --interval 1", "python -m workshop.measure.memory_logger"]
    assert re.search(r"^ *launch (python|torchrun|deepspeed|srun) ", text, re.MULTILINE)
    assert text.count("\n") <= (40 if folder == "benchmark" else 30)


def test_no_two_launchers_of_an_exercise_differ_in_their_resources_only() -> None:
    bodies: dict[tuple[Path, str], Path] = {}
    for launcher in LAUNCHERS:
        body = "\n".join(line for line in launcher.read_text().splitlines() if line and not line.startswith("#"))
        twin = bodies.setdefault((launcher.parent, body), launcher)
        assert twin == launcher


def test_settings_of_the_custom_model_are_all_in_its_env_vars() -> None:
    exported = {name for name, _ in EXPORT.findall((REPO / "custom_model/env_vars.sh").read_text())}
    own = {name.upper() for name in CustomSettings.__dataclass_fields__} - {
        name.upper() for name in Settings.__dataclass_fields__
    }
    assert own <= exported
