"""`python -m unloader`: the same as the command `unloader`.

The guard matters: a spawned worker imports this module under another name and must not start over.
"""

if __name__ == "__main__":
    import sys

    from unloader.cli import main

    sys.exit(main())
