"""A page of what a run or a sweep measured: one HTML file that needs no network and no program."""
