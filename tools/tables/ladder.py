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
TEXTBOOK, STREAM, TOP = LADDER[0], LADDER[-2], LADDER[-1]  # STREAM: the last rung that computes all logits
VARIED = "9_rows"  # what the variants change one setting of
FLOAT8 = "variant_float8"  # the top in 8 bits
ALL_LOGITS = "variant_all_logits"  # rung 10 at its limit
VARIANTS = ("variant_sdpa", "variant_liger", "variant_unfused", ALL_LOGITS, FLOAT8)
PEERS = ("peer_trainer_grouped", "peer_trainer_compiled", "peer_trl_padded", "peer_trl_packed")  # speed-ladder/peers.py


def label(rung: str) -> str:
    """The rung's name in the tables' rows: `4 packing`, `variant: sdpa`, `peer: trl padded`."""
    return rung.replace("variant_", "variant: ").replace("peer_", "peer: ").replace("_", " ")


def below(rung: str) -> str:
    """The rung this one is compared with; the textbook with itself."""
    if rung in (ALL_LOGITS, FLOAT8):
        return STREAM if rung == ALL_LOGITS else TOP
    return VARIED if rung in VARIANTS else LADDER[max(0, LADDER.index(rung) - 1)]
