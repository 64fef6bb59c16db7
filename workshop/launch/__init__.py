"""Between a launcher's bash and its run: workshop/launch.sh starts `python -m workshop.launch` once."""
