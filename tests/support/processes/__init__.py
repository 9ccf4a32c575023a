"""The command and other programs run as processes, also under faulty system calls."""
