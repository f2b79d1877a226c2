import java.io.*; import java.nio.*; import java.nio.file.*; import java.util.*;
import org.apache.kafka.common.compress.*; import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.*; import org.apache.kafka.common.header.*; import org.apache.kafka.common.header.internals.*;
/** Makes the kafka-4.4.0-*.batch files beside it: java -cp "<kafka-clients and codecs>" KafkaBatches.java DIR. */
public class KafkaBatches {
  public static void main(String[] a) throws Exception {
    String dir = a[0];
    Object[][] kinds = {{"none", Compression.NONE}, {"gzip", Compression.gzip().build()},
      {"snappy", Compression.snappy().build()}, {"lz4", Compression.lz4().build()},
      {"zstd", Compression.zstd().build()}, {"zstd22", Compression.zstd().level(22).build()}};
    for (Object[] kind : kinds) {
      byte[] binaryValue = new byte[kind[0].equals("none") ? 1000 : 70_000];
      for (int i = 0; i < binaryValue.length; i++) binaryValue[i] = (byte) (i / 9);
      MemoryRecordsBuilder b = MemoryRecords.builder(ByteBuffer.allocate(1 << 18), (byte) 2,
        (Compression) kind[1], TimestampType.CREATE_TIME, 0L, -1L, 4711L, (short) 3, 2147483646, true, -1);
      b.append(1700000000123L, "first".getBytes(), "value".getBytes(), new Header[] {
        new RecordHeader("a", new byte[] {1, 2}), new RecordHeader("b", null),
        new RecordHeader("a", new byte[0])});
      b.append(1700000000100L, null, binaryValue, new Header[0]);
      b.append(1700000000999L, "grabstein".getBytes(), null, new Header[0]);
      b.append(-1L, new byte[0], new byte[0], new Header[0]);
      write(dir, (String) kind[0], b.build().buffer());
    }
    MemoryRecords commit = MemoryRecords.withEndTransactionMarker(0L, 1700000000456L, 0, 4711L,
      (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 17));
    write(dir, "commit", commit.buffer());
    MemoryRecords abort = MemoryRecords.withEndTransactionMarker(0L, 1700000000456L, 0, 4711L,
      (short) 3, new EndTransactionMarker(ControlRecordType.ABORT, 17));
    write(dir, "abort", abort.buffer());
  }
  static void write(String dir, String name, ByteBuffer b) throws IOException {
    byte[] x = new byte[b.remaining()]; b.get(x);
    Files.write(Path.of(dir, "kafka-4.4.0-" + name + ".batch"), x);
    System.out.println(name + " " + x.length);
  }
}
