"""All that can be known of runs without reading rows or writing anything: every problem at once."""
