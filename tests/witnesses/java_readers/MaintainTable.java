import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.ExpireSnapshots;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.parquet.Parquet;

/**
 * Writes all rows of a table to one file and expires its snapshots, as Spark's rewrite_data_files and
 * expire_snapshots do: `CATALOG WAREHOUSE NAMESPACE TABLE`.
 */
public class MaintainTable {
  public static void main(String[] arguments) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize(
        "lake",
        Map.of(
            "uri", "jdbc:sqlite:" + arguments[0],
            "warehouse", arguments[1],
            "jdbc.schema-version", "V1"));
    Table table = catalog.loadTable(TableIdentifier.of(arguments[2], arguments[3]));
    String path = table.location() + "/data/rewritten-" + UUID.randomUUID() + ".parquet";
    DataWriter<Record> writer =
        Parquet.writeData(table.io().newOutputFile(path))
            .schema(table.schema())
            .createWriterFunc(GenericParquetWriter::buildWriter)
            .withSpec(PartitionSpec.unpartitioned())
            .build();
    try (writer; CloseableIterable<Record> rows = IcebergGenerics.read(table).build()) {
      for (Record row : rows) {
        writer.write(row);
      }
    }
    RewriteFiles rewrite = table.newRewrite();
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        rewrite.deleteFile(task.file());
      }
    }
    rewrite.addFile(writer.toDataFile()).commit();
    long newest = table.currentSnapshot().snapshotId();
    // By number: files that the newest snapshot has removed would stay otherwise.
    ExpireSnapshots expire = table.expireSnapshots();
    for (Snapshot each : table.snapshots()) {
      if (each.snapshotId() != newest) {
        expire.expireSnapshotId(each.snapshotId());
      }
    }
    expire.commit();
    System.out.println(newest);
    catalog.close();
  }
}
