import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;

/** Prints the snapshots and the rows of a branch, from a metadata file alone: `METADATA BRANCH`. */
public class ReadTable {
  public static void main(String[] arguments) throws Exception {
    HadoopFileIO files = new HadoopFileIO(new Configuration());
    Table table = new BaseTable(new StaticTableOperations(arguments[0], files), "table");
    for (Snapshot each : table.snapshots()) {
      System.out.println("snapshot " + each.summary().get("unloader.run-id"));
    }
    long head = table.refs().get(arguments[1]).snapshotId();
    try (CloseableIterable<Record> rows = IcebergGenerics.read(table).useSnapshot(head).build()) {
      for (Record row : rows) {
        StringBuilder text = new StringBuilder("row");
        for (int at = 0; at < row.size(); at++) {
          text.append('|').append(shown(row.get(at)));
        }
        System.out.println(text);
      }
    }
  }

  private static String shown(Object value) {
    if (value instanceof ByteBuffer bytes) {
      byte[] copy = new byte[bytes.remaining()];
      bytes.duplicate().get(copy);
      return HexFormat.of().formatHex(copy);
    }
    return value instanceof java.math.BigDecimal number ? number.toPlainString() : "" + value;
  }
}
