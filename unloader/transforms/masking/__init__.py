"""Masks: each turns the values of one column into others, value by value, by a key or without."""
