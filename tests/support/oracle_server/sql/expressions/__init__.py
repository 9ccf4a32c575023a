"""Expressions over exact values, evaluated the way Oracle does."""
