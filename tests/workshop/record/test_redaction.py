"""No key that people write into a file is in a diff that we keep."""

from pathlib import Path

from tests.launching import git
from workshop.record.redaction import diff_without_keys

KEY = "5a1adc0ffee7"
HIDDEN = [
    *(f"os.environ['HF_TOKEN'] = \"{KEY}\"", f'login(token="hf_{KEY}")', f'login("hf_{KEY}")', f'"apiKey": "{KEY}",'),
    *(f"train.py --hub_token {KEY}", f'x = Client("sk-{KEY}")', f'password = """{KEY}"""', f"wandb_key={KEY}"),
    *(f"AWS_ACCESS_KEY_ID={KEY}", f"client_secret: {KEY}"),
]


def test_diff_leaves_out_shell_files_new_files_and_lines_with_keys_and_says_so(tmp_path: Path) -> None:
    for name in ("train.py", "cluster.env", "ex/env_vars.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("steps = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    for name in ("cluster.env", "ex/env_vars.sh", "new.py"):
        (tmp_path / name).write_text(f"x = '{KEY}'\n")
    (tmp_path / "train.py").write_text("".join(f"{line}\n" for line in ["risk-free = 2", *HIDDEN]))
    lines = diff_without_keys(tmp_path).splitlines()
    assert KEY not in str(lines)
    assert lines[5:] == ["-steps = 1", "+risk-free = 2", *["+[left out]"] * len(HIDDEN)]
