"""Whole unloads under a fault, and the promises that hold for every fault."""
