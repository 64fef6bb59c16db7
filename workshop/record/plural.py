"""How many of something, in the words of a message."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 run`, `2,048 runs`; `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
