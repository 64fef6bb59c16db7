"""The commands of `python -m tools`, a module each with `add_arguments(parser)` and `main(arguments) -> exit code`."""
