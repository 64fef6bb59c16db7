"""`python -m workshop.settings`: print all settings."""

from dataclasses import MISSING

from workshop.settings.settings import Settings, settings_of

print(f"{'setting':24} {'read by':12} value")
for item in settings_of(Settings):
    expected = item.metadata["format"].expected
    default = "in env_vars.sh" if item.default is MISSING else item.default
    if item.name not in ("run_dir", "config"):  # which the launcher sets
        print(f"{item.name.upper():24} {item.metadata['by']:12} {expected}; default: {str(default) or 'none'}")
