"""`python -m unloader`: the same as the command `unloader`.

The guard matters: a spawned worker imports this module under another name and must not start over.
"""

if __name__ == "__main__":
    import sys

    try:
        from unloader.cli import program

        program()
    except KeyboardInterrupt:
        # Ctrl-C during that import: `main`, which ends all others with the same line, is not there.
        sys.stderr.write(
            "unloader: error: interrupted before anything was unloaded. Next: run it again\n"
        )
        sys.exit(130)
