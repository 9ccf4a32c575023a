"""What measures instead of unloading: sweeps, ceilings, codecs, sizing, and reports of runs."""
