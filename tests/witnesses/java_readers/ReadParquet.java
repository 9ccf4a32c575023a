import java.math.BigInteger;
import java.util.HexFormat;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.hadoop.ParquetReader;
import org.apache.parquet.hadoop.example.GroupReadSupport;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.IntLogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType;

/** Prints the rows of Parquet files as they are stored, by the reference reader: `FILE ...`. */
public class ReadParquet {
  public static void main(String[] arguments) throws Exception {
    for (String each : arguments) {
      System.out.println("file " + each);
      try (ParquetReader<Group> rows =
          ParquetReader.builder(new GroupReadSupport(), new Path(each)).build()) {
        for (Group row = rows.read(); row != null; row = rows.read()) {
          StringBuilder text = new StringBuilder("row");
          for (int at = 0; at < row.getType().getFieldCount(); at++) {
            text.append('|').append(row.getFieldRepetitionCount(at) == 0 ? "null" : shown(row, at));
          }
          System.out.println(text);
        }
      }
    }
  }

  private static String shown(Group row, int at) {
    PrimitiveType type = row.getType().getType(at).asPrimitiveType();
    boolean isUnsigned =
        type.getLogicalTypeAnnotation() instanceof IntLogicalTypeAnnotation whole
            && !whole.isSigned();
    switch (type.getPrimitiveTypeName()) {
      case BOOLEAN:
        return "" + row.getBoolean(at, 0);
      case INT32:
        int small = row.getInteger(at, 0);
        return isUnsigned ? Integer.toUnsignedString(small) : "" + small;
      case INT64:
        long large = row.getLong(at, 0);
        return isUnsigned ? Long.toUnsignedString(large) : "" + large;
      case FLOAT:
        return "" + Float.floatToRawIntBits(row.getFloat(at, 0));
      case DOUBLE:
        return "" + Double.doubleToRawLongBits(row.getDouble(at, 0));
      default:
        byte[] bytes = row.getBinary(at, 0).getBytes();
        return type.getLogicalTypeAnnotation() instanceof DecimalLogicalTypeAnnotation
            ? new BigInteger(bytes).toString()
            : HexFormat.of().formatHex(bytes);
    }
  }
}
