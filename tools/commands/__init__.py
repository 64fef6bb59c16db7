"""The commands of `python -m tools`, one module each with `add_arguments(parser)` and `run(arguments) -> exit code`."""
