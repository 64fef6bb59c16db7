"""The rungs of the speed ladder, from the bottom to the top; speed-ladder/rungs has a file of settings for each."""

LADDER = (
    "0_textbook",
    "1_bf16",
    "2_batch",
    "3_dynamic",
    "4_packing",
    "5_attention",
    "6_loss",
    "7_compile",
    "8_workers",
    "9_rows",
    "10_stream",
    "11_labelled",
)
TEXTBOOK, TOP = LADDER[0], LADDER[-1]
VARIED = "9_rows"  # what the variants change one setting of
VARIANTS = ("variant_sdpa", "variant_liger", "variant_unfused")


def label(rung: str) -> str:
    """As the tables' rows name it: `4 packing`, `variant: sdpa`."""
    return rung.replace("variant_", "variant: ").replace("_", " ")


def below(rung: str) -> str:
    """The rung this one is compared with; the textbook with itself."""
    return VARIED if rung in VARIANTS else LADDER[max(0, LADDER.index(rung) - 1)]
