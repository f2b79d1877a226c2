import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes the same batches to a topic whatever the broker: what is random comes from a seed, and a batch is what lies
 * between two flushes of a producer that never sends by itself.
 */
final class Writer implements AutoCloseable {
    /** Records of a round lie within this of its time, ms. */
    private static final int SPREAD_MS = 5_000;
    /** Every so many records one is large. */
    private static final int LARGE_OF = 60;
    private static final int LARGE_BYTES = 70_000;
    /** Every so many records one deletes its key. */
    private static final int TOMBSTONE_OF = 5;
    private static final int KEYLESS_OF = 4;

    private final String address;
    private final String topic;
    private final Case asked;
    private final Random random;
    private final Admin admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final List<String> open = new ArrayList<>();
    private long baseMs;
    private boolean deletes;
    private boolean hasKeyless;
    private int written;
    /** The offset behind the last batch. */
    private long next;

    Writer(String address, Case asked) {
        this.address = address;
        this.topic = asked.name();
        this.asked = asked;
        random = new Random(asked.seed() + Integer.getInteger("seed", 0));
        admin = Admin.create(Map.of("bootstrap.servers", address));
    }

    /** So many random steps, at this time. */
    void steps(int count, long atMs, boolean deletes, boolean hasKeyless) throws Exception {
        baseMs = atMs;
        this.deletes = deletes;
        this.hasKeyless = hasKeyless;
        for (int step = 0; step < count; step++) {
            int chosen = random.nextInt(10);
            if (asked.transactions() && chosen >= 5) {
                transact("tx" + random.nextInt(3));
            } else if (chosen >= 3) {
                batch("idempotent" + random.nextInt(2), 1 + random.nextInt(6));
            } else {
                batch("plain", 1 + random.nextInt(6));
            }
        }
    }

    /** A batch with a key of its own, so that the batch before whatever follows has a record that stays. */
    long single(String key, long atMs) throws Exception {
        return send("plain", List.of(new ProducerRecord<>(topic, 0, atMs, key.getBytes(), "v".getBytes()))).offset();
    }

    /** Leaves a transaction open, with a record in it. */
    void leaveOpen() throws Exception {
        begin("tx0");
        batch("tx0", 2);
    }

    /** Ends what is open. */
    void endAll() throws Exception {
        for (String producer : List.copyOf(open)) {
            end(producer);
        }
    }

    private void transact(String producer) throws Exception {
        if (!open.contains(producer)) {
            begin(producer);
            batch(producer, 1 + random.nextInt(5));
        } else if (random.nextInt(3) == 0) {
            batch(producer, 1 + random.nextInt(5));
        } else {
            end(producer);
        }
    }

    private void begin(String producer) {
        if (!open.contains(producer)) {
            producer(producer).beginTransaction();
            open.add(producer);
        }
    }

    private void end(String producer) throws Exception {
        if (random.nextBoolean()) {
            producer(producer).commitTransaction();
        } else {
            producer(producer).abortTransaction();
        }
        open.remove(producer);
        // Kafka writes the marker a moment after it has answered, and maybe behind the next batch.
        TopicPartition partition = new TopicPartition(topic, 0);
        while (admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset() == next) {
            Thread.sleep(5);
        }
        next++;
    }

    private void batch(String producer, int records) throws Exception {
        List<ProducerRecord<byte[], byte[]>> batch = new ArrayList<>();
        for (int at = 0; at < records; at++) {
            batch.add(record());
        }
        send(producer, batch);
    }

    private ProducerRecord<byte[], byte[]> record() {
        int number = written++;
        int chosen = random.nextInt(asked.keys());
        byte[] key = (chosen == 0 ? "" : "key" + chosen).getBytes();
        if (hasKeyless && random.nextInt(KEYLESS_OF) == 0) {
            key = null;
        }
        byte[] value = ("value " + number + "x".repeat(random.nextInt(200))).getBytes();
        boolean isTombstone = random.nextInt(TOMBSTONE_OF) == 0;
        if (random.nextInt(LARGE_OF) == 0) {
            value = new byte[LARGE_BYTES];
            random.nextBytes(value);
        } else if (isTombstone && deletes) {
            value = null;
        } else if (isTombstone) {
            value = new byte[0];
        }
        long atMs = baseMs + random.nextInt(SPREAD_MS);
        var record = new ProducerRecord<>(topic, 0, atMs, key, value);
        for (int header = random.nextInt(3); header > 0; header--) {
            record.headers().add(new RecordHeader("h" + number, random.nextBoolean() ? null : "of a header".getBytes()));
        }
        return record;
    }

    private RecordMetadata send(String name, List<ProducerRecord<byte[], byte[]>> batch) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(name);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : batch) {
            sent.add(producer.send(record));
        }
        producer.flush();
        RecordMetadata last = null;
        for (Future<RecordMetadata> each : sent) {
            last = each.get();
        }
        next = last.offset() + 1;
        return last;
    }

    private KafkaProducer<byte[], byte[]> producer(String name) {
        return producers.computeIfAbsent(name, this::connect);
    }

    private KafkaProducer<byte[], byte[]> connect(String name) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", address, "linger.ms", 600_000, "delivery.timeout.ms", 1_200_000, "batch.size", 1 << 20,
            "compression.type", asked.codec(), "enable.idempotence", !name.equals("plain"), "acks", "all"));
        boolean isTransactional = name.startsWith("tx");
        if (isTransactional) {
            settings.put("transactional.id", topic + "-" + name);
            settings.put("transaction.timeout.ms", 900_000);
        }
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (isTransactional) {
            producer.initTransactions();
        }
        return producer;
    }

    @Override
    public void close() {
        producers.values().forEach(KafkaProducer::close);
        admin.close();
    }
}
