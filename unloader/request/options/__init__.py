"""The one list of options: each is declared here or in its source's room, and nowhere else."""
