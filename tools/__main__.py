"""`python -m tools COMMAND`: what to do before and after a job. Each command is a module in tools/commands/."""

import argparse
import gc
import sys
from pathlib import Path

from tools.commands import check, fill, plan, plot, report, runs, submit
from tools.errors import InputError, NoRunsError

_ROOT = Path(__file__).resolve().parents[1]
_EXIT_CODES = """exit codes:
  0  done
  1  check: a wrong cell; report --check: a generated block has drifted; submit: a run was refused, or failed here
  2  usage, or a file that cannot be used as given
  3  no runs to read yet
  130  submit: interrupted"""
_COMMANDS = {
    "submit": submit,
    "plan": plan,
    "runs": runs,
    "fill": fill,
    "check": check,
    "report": report,
    "plot": plot,
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m tools",
        description=__doc__,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in _COMMANDS.items():
        summary = module.__doc__.splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command and give its exit code; argparse itself exits 2 on a usage error."""
    words = sys.argv[1:] if argv is None else argv
    # argparse itself cannot keep apart what stands before and after `--`.
    cut = words.index("--") if words[:1] == ["submit"] and "--" in words else len(words)
    arguments = parser().parse_args(words[:cut], argparse.Namespace(after_dashes=words[cut + 1 :]))
    try:
        return _COMMANDS[arguments.command].run(arguments)
    except ModuleNotFoundError as missing:  # packages are imported where they are needed
        if (_ROOT / missing.name.split(".")[0]).is_dir():
            raise
        print(
            f"error: {sys.executable} has no {missing.name}; expected the workshop's environment: `make install` in "
            f"{_ROOT} once, then `{_ROOT}/.venv/bin/python -m tools {' '.join(words)}`",
            file=sys.stderr,
        )
        return 2
    except NoRunsError as nothing:
        print(nothing, file=sys.stderr)
        return 3
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head` has read enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    # A short process without cycles to collect: looking for them among the records of 10,000 runs doubles its time.
    gc.disable()
    sys.exit(main())
