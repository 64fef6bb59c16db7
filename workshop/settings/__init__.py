"""What may be asked of a run: its settings, the files of DeepSpeed and FSDP, lines of submit.txt; all without torch."""
