"""Machines described by sysfs files, and the rules that seats follow."""
