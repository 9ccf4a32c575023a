"""What a run tells the programs around it: metrics, traces, commands at its end."""
