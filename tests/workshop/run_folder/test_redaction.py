"""No key that people write into a file is in a diff that we keep, and what is no key stays."""

import pytest

from workshop.run_folder.redaction import redacted

KEY = "5a1adc0ffee7"
LONG = f"{KEY:0<40}"
HIDDEN = [
    *(f"export WANDB_API_KEY={KEY}", f"os.environ['HF_TOKEN'] = \"{KEY}\"", f'login(token="hf_{KEY}")'),
    *(f"login(token='{KEY}', add_to_git_credential=False)", f'login("hf_{LONG}")', f'wandb.login(key="{LONG}")'),
    *(f"wandb login --relogin {LONG}", f'OpenAI(api_key = f"{KEY}")', f"  api_key: {KEY}", f'  "apiKey": "{KEY}",'),
    *(f'  "token": "{KEY}",', f"train.py --token {KEY}", f"train.py --api-key='{KEY}' --x"),
    *(f"train.py --hub_token {KEY}", f'{{"Authorization": "Bearer {KEY}"}}', f"curl -H 'Authorization: Basic {KEY}' x"),
    *(f"https://user:{KEY}@github.com/x", f"https://user:p@ss{KEY}@github.com/x", f"https://{KEY}0000@github.com/x"),
    *(f"proxy=user:{KEY}@proxy:8080", f"curl -u user:{KEY} https://x", f'os.environ.setdefault("HF_TOKEN", "{KEY}")'),
    *(f'p.add_argument("--token", default="{KEY}")', f'token: str | None = "{KEY}"', f'password = "a" + "{KEY}"'),
    *(f'password = """{KEY}"""', f'PASSWORD="abc {KEY} def"', f'export HF_TOKEN="abc"{KEY}'),
    *(f"export HF_TOKEN_2={KEY}", f'+hf_token = (\n+    "{KEY}"\n+)'),
    *(f"machine api.wandb.ai login user password {KEY}", f'"source": "login(token=\\"{KEY}\\")\\n",'),
    *(f"AWS_ACCESS_KEY_ID={KEY}", f"wandb_key={KEY}0000", f'x = "ghp_{KEY}0000"'),
    f"+-----BEGIN RSA PRIVATE KEY-----\n+{KEY}\n+-----END RSA PRIVATE KEY-----",
]
KEPT = [
    *("export TOKENIZER_NAME=gpt2", "export MAX_NEW_TOKENS=64", "--tokenizer-name gpt2 --max-new-tokens 5"),
    *("tokenizer.pad_token = tokenizer.eos_token", 'tokenizer(pad_token="<pad>", eos_token="</s>")'),
    *('"pad_token": "[PAD]",', "sorted(found, key=lambda one: one.name)", "next_token = logits[:, -1].argmax(-1)"),
    *("if token == tokenizer.eos_token_id: return", "git@github.com:user/repo.git", "http://localhost:8000/v1"),
    *("for key, value in found.items():", "index 1f3a..2b4c 100644", "pytorch:24.01-py3@sha256:abc"),
]


@pytest.mark.parametrize("text", HIDDEN)
def test_key_is_hidden(text: str) -> None:
    assert KEY not in redacted(text) and "[left out]" in redacted(text)


def test_what_is_no_key_stays() -> None:
    assert redacted("\n".join(KEPT)).splitlines() == KEPT
