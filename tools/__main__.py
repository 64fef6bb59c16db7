"""`python -m tools COMMAND`: what to do before and after a job. Each command is a module in tools/commands/."""

import argparse
import contextlib
import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from tools.errors import InputError, NoRunsError, failed_file, no_package
from workshop.record.exercises import REPO
from workshop.record.printable import one_line, printable

_EXIT_CODES = """exit codes:
  0  done
  1  check: a wrong cell, none filled in, or what cannot be checked; report --check: a generated block
     has drifted; submit: a run was refused, or failed here; doctor: an error
  2  usage, or a file that cannot be used as given
  3  no runs to read yet
  130  interrupted"""
_COMMANDS = (
    *("doctor", "submit", "plan", "runs", "fill", "check"),
    *("report", "plot", "score", "profile", "page"),
)
# Older names, which printed documents have; for one version.
_RENAMED = {"summary": "runs", "grade": "check", "watch": "runs"}


class _Harmless:
    """Standard output; what others wrote into logs and names cannot steer the reader's terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _module(command: str) -> ModuleType:
    return import_module(f"tools.commands.{command}")


def parser(names: Sequence[str] = _COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands. Only their modules are imported: each needs other packages."""
    top = argparse.ArgumentParser(
        prog="python -m tools",
        description=__doc__,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        module = _module(name)
        summary = module.__doc__.splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
    return top


def _check_clone() -> None:
    """Refuse to work for another clone than this code's: its runs and code would be taken for one's own.

    An environment that several clones share (WORKSHOP_VENV) finds the one it was installed from, unless Python is
    started in a clone's own top folder.

    Raises:
        InputError: the current folder is in another clone.
    """
    here = Path.cwd()
    clone = next((folder for folder in (here, *here.parents) if (folder / "workshop" / "launch.sh").is_file()), REPO)
    its_tools = clone / "tools" / "__main__.py"
    if its_tools.is_file() and not its_tools.samefile(__file__):
        raise InputError(f"this folder is in the clone {clone}, but these tools are those of {REPO}: cd {clone}")


def main(argv: list[str] | None = None) -> int:
    """Run one command and give its exit code; argparse itself exits 2 on a usage error."""
    words = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if new := _RENAMED.get(words[0]):
        print(f"`{words[0]}` is now `{new}`, and the next version knows only that", file=sys.stderr)
        words = [new, *words[1:]]
    # argparse itself cannot keep apart what stands before and after `--`.
    cut = words.index("--") if words[:1] == ["submit"] and "--" in words else len(words)
    named = [name for name in _COMMANDS if words[:1] == [name]]
    try:
        if words[:1] == ["plan"]:  # nor have a subcommand that may be left out
            words = ["plan", *_module("plan").with_subcommand(words[1:])]
            cut = len(words)
        after = argparse.Namespace(after_dashes=words[cut + 1 :])
        arguments = parser(named or _COMMANDS).parse_args(words[:cut], after)
        _check_clone()
        with contextlib.redirect_stdout(_Harmless(sys.stdout)):
            return _module(arguments.command).main(arguments)
    except ModuleNotFoundError as missing:  # not in this Python
        if not (text := no_package(missing.name)):
            raise
        print(f"error: {text}", file=sys.stderr)
        return 2
    except NoRunsError as nothing:
        print(nothing, file=sys.stderr)
        return 3
    except InputError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head` has read enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"error: {one_line(failed_file(error))}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    # A short process without cycles to collect: looking for them among the records of 10,000 runs doubles its time.
    gc.disable()
    sys.exit(main())
