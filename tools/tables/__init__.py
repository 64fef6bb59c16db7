"""From figures to the tables of the documents: labels, fill, forms. Reads tools.logs, nothing above."""
