"""The programs that load our files, and the commands of the page that are run."""
