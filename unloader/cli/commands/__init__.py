"""The commands, each `command` in the module of its name."""
