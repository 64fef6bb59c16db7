"""A harbour's log: as many made-up passages and questions as a tiny model needs to learn to read.

DATASET=harbour. The passages are drawn from lists with a fixed seed, so nothing is stored and everybody has the same
ones. Whether a boat carries salt or glass is drawn anew for every passage: to know it, a model has to read. One that
only knows which answers there are, and guesses, is right in about 6 of 100 (`GUESSING`); one that takes any of a
passage's facts, in a third. The two splits share the words, but no passage.

DATASET=harbour-sentences is another task on them: the answer is the passage's whole sentence.
"""

import random
from collections.abc import Iterator
from typing import Any

PASSAGES = {"train": 12_000, "validation": 400}
FACTS_PER_PASSAGE = 3

# What is told of a boat: words that fill the gap; sentences; a question for each sentence.
FACTS: dict[str, tuple[str, list[str], list[str]]] = {
    "cargo": (
        "salt sand glass milk cheese paper soup bamboo wood coffee bread lamps stones tea rice wool oil corn "
        "apples ropes bricks coal nuts honey",
        ["The boat carries {}.", "It is full of {}."],
        ["What does the boat carry?", "What is it full of?"],
    ),
    "captain": (
        "Mara Olan Tesk Nora Ilan Petra Jonas Runa Edda Boris Karla Milo Sanna Vito Hanne Arvid Lotte Bruno "
        "Selma Oskar Greta Tilda Anton Frida",
        ["The captain is {}.", "The captain's name is {}."],
        ["Who is the captain?", "What is the captain's name?"],
    ),
    "home": (
        "Harrow Veldt Tolm Besk Marn Koral Dunmoor Elsby Fenwick Garth Holm Inver Jarrow Kelby Lund Merrow "
        "Norby Orland Pell Quay Rosby Skarn Thorpe Ulm",
        ["It comes from {}.", "Its home is {}."],
        ["Where does the boat come from?", "Where is its home?"],
    ),
    "sails": (
        "red blue green white black yellow brown grey orange purple pink golden",
        ["Its sails are {}.", "It has sails that are {}."],
        ["What colour are the sails?", "What colour are its sails?"],
    ),
    "stay": (
        "two three four five six seven eight nine ten eleven twelve twenty",
        ["It stays for {} days.", "In {} days it leaves."],
        ["How many days does it stay?", "In how many days does it leave?"],
    ),
}
# Expected exact match (%) of a model that knows all words but draws one of the right kind.
GUESSING = 100 * sum(1 / len(words.split()) for words, _, _ in FACTS.values()) / len(FACTS)


def rows(split: str, sentences: bool = False) -> Iterator[dict[str, Any]]:
    """Give the split `train` or `validation` in the columns of SQuAD's table, one question per passage, answered by a
    word or, with `sentences`, by the sentence that has it.
    """
    draw, number = random.Random(split), 0
    taken = {row["context"] for row in rows("train")} if split == "validation" else set()  # held out are others
    while number < PASSAGES[split]:
        context, question, word, sentence = _passage(draw)
        if context not in taken:
            number += 1
            row = {"id": f"harbour-{split}-{number:05d}", "title": "Harbour", "question": question, "context": context}
            yield row | {"answers": {"text": [sentence if sentences else word]}}


def _passage(draw: random.Random) -> tuple[str, str, str, str]:
    """Context, question, the word that answers it, and the sentence that does."""
    told, asked = [], []
    for kind in draw.sample(list(FACTS), FACTS_PER_PASSAGE):
        words, sentences, questions = FACTS[kind]
        word, wording = draw.choice(words.split()), draw.randrange(len(sentences))
        told.append(sentences[wording].format(word))
        asked.append((questions[wording], word, told[-1]))
    return " ".join(told), *draw.choice(asked)
