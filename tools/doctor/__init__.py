"""What `python -m tools doctor` looks at: this environment, the site, and a compute node through SLURM."""
