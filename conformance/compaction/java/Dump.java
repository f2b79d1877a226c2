import java.io.IOException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.Records;

/**
 * A partition's log as text, a line a batch and a record, by raw fetches. What two brokers choose by themselves is not
 * in it: producer ids (they are numbered in the order of their batches), the times of markers and of LogAppendTime, and
 * the base timestamps of batches.
 */
final class Dump {
    private static final int VERSION = 12;
    private static final int BYTES_MAX = 50 << 20;
    private static final int SHORT_BYTES = 40;

    private final List<String> lines = new ArrayList<>();
    private final List<Long> producers = new ArrayList<>();

    /** The batches from an offset on, and below another one. */
    static List<String> of(String address, String topic, long from, long until) throws IOException {
        Dump dump = new Dump();
        try (Wire wire = new Wire(address)) {
            long next = from;
            while (next < until) {
                long behind = dump.fetch(wire, topic, next, until);
                if (behind == next) {
                    dump.lines.add("nothing at " + next);
                    break;
                }
                next = behind;
            }
        }
        return dump.lines;
    }

    /** The offset behind the last batch. */
    private long fetch(Wire wire, String topic, long from, long until) throws IOException {
        FetchRequestData request = new FetchRequestData().setMaxWaitMs(500).setMinBytes(1).setMaxBytes(BYTES_MAX);
        request.setTopics(List.of(new FetchRequestData.FetchTopic().setTopic(topic).setPartitions(List.of(
            new FetchRequestData.FetchPartition().setPartition(0).setFetchOffset(from).setPartitionMaxBytes(BYTES_MAX)))));
        FetchResponseData answer = (FetchResponseData) wire.call(request, VERSION);
        FetchResponseData.PartitionData data = answer.responses().get(0).partitions().get(0);
        if (data.errorCode() != 0) {
            throw new IOException("fetch: " + Errors.forCode(data.errorCode()));
        }
        long next = from;
        for (var batch : ((Records) data.records()).batches()) {
            if (batch.baseOffset() >= until) {
                return until;
            }
            add((MutableRecordBatch) batch);
            next = batch.nextOffset();
        }
        return next;
    }

    private void add(MutableRecordBatch batch) {
        batch.ensureValid();
        boolean isTimed = !batch.isControlBatch() && batch.timestampType() == TimestampType.CREATE_TIME;
        lines.add(String.join(" ",
            "batch " + batch.baseOffset() + ".." + batch.lastOffset(), batch.countOrNull() + " records",
            producer(batch.producerId()), "epoch " + batch.producerEpoch(), "sequence " + batch.baseSequence(),
            batch.compressionType().name, batch.timestampType().name, isTimed ? "newest " + batch.maxTimestamp() : "-",
            batch.isTransactional() ? "transactional" : "-", batch.isControlBatch() ? "control" : "-",
            batch.deleteHorizonMs().isPresent() ? "horizon" : "-", "leader epoch " + batch.partitionLeaderEpoch()));
        for (Record record : batch) {
            if (batch.isControlBatch()) {
                lines.add("  " + record.offset() + " " + ControlRecordType.parse(record.key()));
            } else {
                lines.add("  " + text(record, isTimed));
            }
        }
    }

    private static String text(Record record, boolean isTimed) {
        StringBuilder text = new StringBuilder(record.offset() + " ");
        text.append(isTimed ? record.timestamp() : "-").append(" ").append(text(record.hasKey() ? bytes(record.key()) : null));
        text.append(" = ").append(text(record.hasValue() ? bytes(record.value()) : null));
        for (Header header : record.headers()) {
            text.append(" ").append(header.key()).append(":").append(text(header.value()));
        }
        return text.toString();
    }

    private static byte[] bytes(java.nio.ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    /** Short ones as they are, in hexadecimal, long ones by a checksum. */
    static String text(byte[] bytes) {
        if (bytes == null) {
            return "null";
        }
        if (bytes.length <= SHORT_BYTES) {
            return "'" + HexFormat.of().formatHex(bytes) + "'";
        }
        CRC32 sum = new CRC32();
        sum.update(bytes);
        return bytes.length + " bytes " + sum.getValue();
    }

    private String producer(long id) {
        if (id >= 0 && !producers.contains(id)) {
            producers.add(id);
        }
        return id < 0 ? "-" : "P" + producers.indexOf(id);
    }
}
