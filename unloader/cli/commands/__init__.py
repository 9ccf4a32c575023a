"""The commands; each is declared by its name, a summary and examples."""
