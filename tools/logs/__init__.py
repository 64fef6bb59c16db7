"""From a run folder's files to figures: one parser per kind of log. Reads workshop/record/, nothing above."""
