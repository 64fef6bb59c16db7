"""From figures to the tables of the documents: labels, fill, judging. Reads tools.logs, nothing above."""
