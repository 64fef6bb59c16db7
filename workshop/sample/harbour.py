"""A harbour's log: as many made-up passages and questions as a tiny model needs to learn to read.

DATASET=harbour. The passages are drawn from lists with a fixed seed, so nothing is stored and everybody has the same
ones. Whether a boat carries salt or glass is drawn anew for every passage: to know it, a model has to read. One that
only knows which answers there are, and guesses, is right in about 6 of 100 (`GUESSING`); one that takes any of a
passage's facts, in a third. The two splits share the words, but no passage.

DATASET=harbour-sentences is another task on them: the answer is the passage's whole sentence.
"""

import random
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


def document(split: str, sentences: bool = False) -> dict[str, Any]:
    """The split `train` or `validation` in SQuAD's structure, one question per passage, answered by a word or, with
    `sentences`, by the sentence that has it.
    """
    draw = random.Random(split)
    taken = _contexts("train") if split == "validation" else set()  # held-out passages are others
    paragraphs = []
    while len(paragraphs) < PASSAGES[split]:
        context, question, *places = _passage(draw)
        answer, start = places[sentences]
        if context not in taken:
            answers = [{"text": answer, "answer_start": start}]
            name = f"harbour-{split}-{len(paragraphs) + 1:05d}"
            paragraphs.append({"context": context, "qas": [{"id": name, "question": question, "answers": answers}]})
    return {"version": "1.1", "data": [{"title": "Harbour", "paragraphs": paragraphs}]}


def _contexts(split: str) -> set[str]:
    return {paragraph["context"] for paragraph in document(split)["data"][0]["paragraphs"]}


def _passage(draw: random.Random) -> tuple[str, str, tuple[str, int], tuple[str, int]]:
    """Context, question, the word that answers it and the sentence that does, each with where it starts."""
    context, asked = "", []
    for kind in draw.sample(list(FACTS), FACTS_PER_PASSAGE):
        words, sentences, questions = FACTS[kind]
        word, wording = draw.choice(words.split()), draw.randrange(len(sentences))
        before = sentences[wording].partition("{}")[0]
        sentence = sentences[wording].format(word)
        asked.append((questions[wording], (word, len(context) + len(before)), (sentence, len(context))))
        context += sentence + " "
    return context.strip(), *draw.choice(asked)
