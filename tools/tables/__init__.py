"""From figures to the READMEs' tables: definitions, fill, export and plots. Reads tools.logs, nothing above."""
