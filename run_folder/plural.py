"""How many of something, in the words of a message."""


def counted(number: int, noun: str) -> str:
    """`1 run`, `2,048 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
