"""The directories of earlier runs beside that of a new one: which stay, and which is the newest."""
