// Runs statements through Oracle's JDBC driver and prints their rows; README.md has the form.

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.Period;
import java.time.ZoneOffset;
import java.util.HexFormat;
import java.util.Properties;
import oracle.jdbc.OracleConnection;
import oracle.jdbc.OracleDriver;

public class Witness {
    private static final PrintStream OUT =
            new PrintStream(
                    new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        int fetchRows = Integer.parseInt(arguments[4]);
        Properties login = new Properties();
        login.setProperty("user", arguments[0]);
        login.setProperty("password", System.getenv("WITNESS_PASSWORD"));
        String url = "jdbc:oracle:thin:@//" + arguments[1] + ":" + arguments[2] + "/" + arguments[3];
        try (Connection connection = new OracleDriver().connect(url, login)) {
            connection.unwrap(OracleConnection.class).setSessionTimeZone("UTC");
            String version = connection.getMetaData().getDatabaseProductVersion();
            OUT.println("{\"connected\": " + quoted(version) + "}");
            BufferedReader lines =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String sql = lines.readLine(); sql != null; sql = lines.readLine()) {
                try {
                    run(connection, sql, fetchRows);
                } catch (SQLException error) {
                    printError(error);
                }
            }
        } catch (SQLException error) {
            printError(error);
        }
        OUT.flush();
    }

    private static void run(Connection connection, String sql, int fetchRows) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(fetchRows);
            try (ResultSet rows = statement.executeQuery(sql)) {
                ResultSetMetaData columns = rows.getMetaData();
                printColumns(columns);
                long count = 0;
                for (; rows.next(); count++) {
                    StringBuilder line = new StringBuilder();
                    for (int i = 1; i <= columns.getColumnCount(); i++) {
                        line.append(i == 1 ? "" : ", ").append(quoted(text(rows, columns, i)));
                    }
                    OUT.println("{\"row\": [" + line + "]}");
                }
                OUT.println("{\"rows\": " + count + "}");
            }
        }
    }

    private static void printColumns(ResultSetMetaData columns) throws SQLException {
        StringBuilder line = new StringBuilder();
        for (int i = 1; i <= columns.getColumnCount(); i++) {
            line.append(i == 1 ? "[" : ", [").append(quoted(columns.getColumnName(i)));
            line.append(", ").append(quoted(columns.getColumnTypeName(i)));
            line.append(", ").append(columns.getPrecision(i));
            line.append(", ").append(columns.getScale(i)).append("]");
        }
        OUT.println("{\"columns\": [" + line + "]}");
    }

    private static String text(ResultSet rows, ResultSetMetaData columns, int i)
            throws SQLException {
        Object value =
                switch (columns.getColumnTypeName(i)) {
                    case "NUMBER" -> rows.getBigDecimal(i);
                    case "RAW", "BLOB" -> rows.getBytes(i);
                    case "DATE", "TIMESTAMP" -> rows.getObject(i, LocalDateTime.class);
                    case "TIMESTAMP WITH TIME ZONE" -> rows.getObject(i, OffsetDateTime.class);
                    case "TIMESTAMP WITH LOCAL TIME ZONE" -> utc(rows, i);
                    case "INTERVALYM" -> rows.getObject(i, Period.class);
                    case "INTERVALDS" -> rows.getObject(i, Duration.class);
                    case "BINARY_FLOAT" -> rows.getFloat(i);
                    case "BINARY_DOUBLE" -> rows.getDouble(i);
                    case "BOOLEAN" -> rows.getBoolean(i);
                    default -> rows.getString(i);
                };
        return rows.wasNull() || value == null ? null : text(value);
    }

    private static LocalDateTime utc(ResultSet rows, int i) throws SQLException {
        OffsetDateTime value = rows.getObject(i, OffsetDateTime.class);
        return value == null ? null : value.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime();
    }

    private static String text(Object value) {
        if (value instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        } else if (value instanceof LocalDateTime moment) {
            return momentText(moment);
        } else if (value instanceof OffsetDateTime moment) {
            String zone = moment.getOffset().getId();
            return momentText(moment.toLocalDateTime()) + " " + (zone.equals("Z") ? "+00:00" : zone);
        } else if (value instanceof Period months) {
            return Long.toString(months.toTotalMonths());
        } else if (value instanceof Duration nanos) {
            // Not toNanos(): an interval may be longer than the 292 years of a long.
            return BigInteger.valueOf(nanos.getSeconds())
                    .multiply(BigInteger.valueOf(1_000_000_000L))
                    .add(BigInteger.valueOf(nanos.getNano()))
                    .toString();
        }
        return value.toString();
    }

    private static String momentText(LocalDateTime at) {
        // The ISO calendar has a year 0, which is 1 BC.
        int year = at.getYear() > 0 ? at.getYear() : at.getYear() - 1;
        return String.format(
                "%s%04d-%02d-%02d %02d:%02d:%02d.%09d",
                year < 0 ? "-" : "",
                Math.abs(year),
                at.getMonthValue(),
                at.getDayOfMonth(),
                at.getHour(),
                at.getMinute(),
                at.getSecond(),
                at.getNano());
    }

    private static void printError(SQLException error) {
        String message = quoted(error.getMessage());
        OUT.println("{\"error\": " + error.getErrorCode() + ", \"message\": " + message + "}");
    }

    private static String quoted(String value) {
        if (value == null) {
            return "null";
        }
        StringBuilder out = new StringBuilder("\"");
        for (char each : value.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\').append(each);
            } else if (each < ' ') {
                out.append(String.format("\\u%04x", (int) each));
            } else {
                out.append(each);
            }
        }
        return out.append('"').toString();
    }
}
