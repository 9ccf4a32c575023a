"""A server of MariaDB or MySQL, and a program that commits during a run."""
