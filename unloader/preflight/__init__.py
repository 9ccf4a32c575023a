"""Measuring the ceilings of a run before it begins; `unloader.ceilings` says what they are."""
