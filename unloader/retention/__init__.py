"""The directories of earlier runs beside a new one: which of them stay, and which is the newest."""
