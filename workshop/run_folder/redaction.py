"""Hide keys that people write into files: no diff of the code that we keep may hold one.

Hidden are values assigned or passed to names of keys, logins, and text in the form of a known key; in doubt more is
hidden. Names of text tokens (`eos_token="</s>"`, MAX_NEW_TOKENS) stay.
"""

import re

_QUOTED = r"""\\?[rbfuRBFU]{0,2}(?:"{3}[\s\S]{0,4000}?"{3}|'{3}[\s\S]{0,4000}?'{3}|"""
_QUOTED += r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_ANY = rf"(?!\[left out\])(?:{_QUOTED}(?:\s{{0,8}}\+?\s{{0,8}}{_QUOTED})*[^\s,;)\]}}]*|[\"'][^\n]*|\S+)"
_LIKE_A_KEY = r"(?=[\w.+/=-]{0,200}\d)(?=[\w.+/=-]{0,200}[A-Za-z])[\w.+/=-]{8,}(?![\w(\[])"
# After a name: `=`, `:`, an annotation and `=`; after a quoted one `,` too, as in setdefault("HF_TOKEN", "...").
_IS = r"""(?:_?\d{1,3})?(?![A-Za-z0-9_])"""
_IS += r"""(?:(?:\\?['"])?\]?(?:\s{0,8}:\s{0,8}[\w.| \[\]]{1,40})?\s{0,8}(?:[:+?]?=(?!=)|:)"""
_IS += r"""[\s(+\\-]{0,80}|\\?['"]\s{0,8},\s{0,8}(?:\w{1,40}\s{0,8}=\s{0,8})?)"""
_PASSWORD = "password|passwd|passphrase|secret|(?:api|access|private|auth|secret)[_-]?key(?:[_-]?id)?"

# Each pattern keeps its first group and hides the rest.
_PATTERNS = [
    re.compile(pattern)
    for pattern in (
        rf"((?:TOKEN|KEY|CREDENTIALS|(?i:{_PASSWORD})){_IS}){_ANY}",
        rf"((?i:token|pwd){_IS})(?:(?!\\?.[<\[]){_QUOTED}|{_LIKE_A_KEY})",
        rf"((?i:key){_IS})\\?[\"']?(?=\S{{0,200}}\d)[\w.+/=-]{{16,}}",
        rf"((?i:(?<!-)--[\w-]{{0,64}}(?:token|key|password|secret|passwd))(?:\s{{1,8}}|=))(?!-){_ANY}",
        r"((?i:\blogin)(?:[\s(]|--[\w-]{1,40}[ =]|[\"']){1,8})[\w.-]{20,}",
        r"((?i:\bpassword) {1,8})(?=\S{0,200}\d)\S{8,}",
        r"((?i:\b(?:Bearer|Authorization\W{1,6}(?:Basic|Token))) {1,8})[\w.~+/=-]{6,}",
        r"(://)[^\s/:@'\"]{16,256}(?=@)",
        r"((?<=[\w.+%/-]):(?!//))[^\s:/'\"@][^\s'\"]{2,128}(?=@(?!sha256)\w)",
        r"((?:\s-u|--user)[ =]{1,8}[^\s:'\"]{1,64}:)[^\s'\"]+",
        r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:[\s\\+]*[\w/+=]{8,})+",
        r"()\b(?:hf_|sk-|gh[opsur]_|github_pat_|glpat-|xox[abps]-|AKIA|AIza|eyJ)[\w.-]{12,}",
    )
]


def redacted(text: str) -> str:
    """The text with `[left out]` in place of keys and passwords."""
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1[left out]", text)
    return text
