"""Whole unloads under a fault, and the promises that hold whatever the fault was."""
