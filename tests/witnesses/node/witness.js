// Runs statements through node-oracledb (thin) and prints their rows; README.md has the form.
'use strict';

const oracledb = require('oracledb');
const readline = require('readline');

const print = (thing) => process.stdout.write(JSON.stringify(thing) + '\n');
const pad = (number, width) => String(Math.abs(number)).padStart(width, '0');

// A Date has milliseconds and no zone; with TZ=UTC its UTC fields are those the server sent.
function momentText(date) {
  const year = date.getUTCFullYear();
  const day = `${pad(year, 4)}-${pad(date.getUTCMonth() + 1, 2)}-${pad(date.getUTCDate(), 2)}`;
  const clock = [date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds()];
  const fraction = pad(date.getUTCMilliseconds(), 3) + '000000';
  return `${year < 0 ? '-' : ''}${day} ${clock.map((part) => pad(part, 2)).join(':')}.${fraction}`;
}

function nanoseconds(interval) {
  const hours = BigInt(interval.days) * 24n + BigInt(interval.hours);
  const minutes = hours * 60n + BigInt(interval.minutes);
  return (minutes * 60n + BigInt(interval.seconds)) * 1000000000n + BigInt(interval.fseconds);
}

function text(value, type) {
  if (value === null || value === undefined) return null;
  if (value instanceof Date) {
    return momentText(value) + (type === oracledb.DB_TYPE_TIMESTAMP_TZ ? ' +00:00' : '');
  }
  if (Buffer.isBuffer(value)) return value.toString('hex');
  if (value instanceof oracledb.IntervalYM) return String(value.years * 12 + value.months);
  if (value instanceof oracledb.IntervalDS) return String(nanoseconds(value));
  // String() drops the sign of a zero.
  return Object.is(value, -0) ? '-0' : String(value);
}

// A double cannot hold every NUMBER, and a LOB is wanted whole.
function asExactType({ dbType }) {
  if (dbType === oracledb.DB_TYPE_NUMBER) return { type: oracledb.STRING };
  if (dbType === oracledb.DB_TYPE_CLOB || dbType === oracledb.DB_TYPE_NCLOB) {
    return { type: oracledb.STRING };
  }
  if (dbType === oracledb.DB_TYPE_BLOB) return { type: oracledb.BUFFER };
  return undefined;
}

async function run(connection, sql, fetchRows) {
  const options = {
    resultSet: true,
    fetchArraySize: fetchRows,
    prefetchRows: fetchRows,
    fetchTypeHandler: asExactType,
  };
  const cursor = (await connection.execute(sql, [], options)).resultSet;
  const columns = cursor.metaData;
  print({
    columns: columns.map((column) => [
      column.name, column.dbTypeName, column.precision ?? null, column.scale ?? null,
    ]),
  });
  let count = 0;
  for (;;) {
    const rows = await cursor.getRows(fetchRows);
    for (const row of rows) {
      print({ row: row.map((value, index) => text(value, columns[index].dbType)) });
    }
    count += rows.length;
    if (rows.length < fetchRows) break;
  }
  await cursor.close();
  print({ rows: count });
}

async function main() {
  const [user, host, port, service, fetchRows] = process.argv.slice(2);
  let connection;
  try {
    connection = await oracledb.getConnection({
      user,
      password: process.env.WITNESS_PASSWORD,
      connectString: `${host}:${port}/${service}`,
    });
  } catch (error) {
    print({ error: error.errorNum, message: error.message });
    return;
  }
  print({ connected: connection.oracleServerVersionString });
  for await (const sql of readline.createInterface({ input: process.stdin })) {
    try {
      await run(connection, sql, Number(fetchRows));
    } catch (error) {
      print({ error: error.errorNum, message: error.message });
    }
  }
  await connection.close();
}

main();
