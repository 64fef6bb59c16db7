"""From figures to the tables of the documents: definitions, fill, judging. Reads tools.logs, nothing above."""
