"""Commits inserts, deletes and updates to a table without pause, each transaction numbered.

Called as `writer.py URL`; prints a line once it has begun and ends on SIGTERM. Transaction
i inserts row 10000000 + i, deletes row 3i, rewrites row 3i + 1 and sets row 0 to i, so that the
state after k transactions is known from k alone.
"""

import asyncio
import sys

import asyncpg

TRANSACTION = """
INSERT INTO moving VALUES (10000000 + {i}, 'new ' || {i}, 'k' || {i});
DELETE FROM moving WHERE id = 3 * {i};
UPDATE moving SET value = 'rewritten ' || {i} WHERE id = 3 * {i} + 1;
UPDATE moving SET value = '{i}' WHERE id = 0;
"""


async def main(url: str) -> None:
    """Commit one transaction after the other."""
    connection = await asyncpg.connect(url)
    number = 0
    while True:
        number += 1
        async with connection.transaction():
            await connection.execute(TRANSACTION.format(i=number))
        if number == 20:
            print("writing", flush=True)


asyncio.run(main(sys.argv[1]))
