import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The same records to Apache Kafka and to Floe, compacted by both, and compared: batch by batch and record by record, as
 * consumers of either isolation level get them from several offsets, and by their times.
 *
 * <p>Kafka leaves its newest segment alone. So each round ends with a record whose key is its own and whose time is so
 * much later that Kafka puts it into a new segment; what lies before it is compared. While a round is written, neither
 * compacts. Arguments: Kafka's address, Floe's, the folder of Kafka's logs, and names of cases, all by default.
 */
final class Compaction {
    private static final int ROUNDS = 3;
    private static final int[] STEPS = {150, 100, 60};
    private static final long SEGMENT_MS = 300_000;
    private static final long ROUND_MS = 4 * SEGMENT_MS;
    /** How much older than markers the records are, so that no marker's time is among theirs. */
    private static final long AGE_MS = 36_000_000;
    private static final long WAIT_MS = 60_000;
    /** Floe is done long before Kafka has noted that it is. */
    private static final long FLOE_WAIT_MS = 15_000;
    private static final int STARTS = 6;
    private static final String NONE = "no such record";

    private final String kafka;
    private final String floe;
    private final Path logs;
    private final List<Case> cases = new ArrayList<>();
    private final Map<String, Writer> writers = new HashMap<>();
    /** Of each case the offset of the record that ends the round. */
    private final Map<String, Long> ends = new LinkedHashMap<>();
    private final Map<String, Long> starts = new HashMap<>();
    private final long beganMs = System.currentTimeMillis();
    private boolean isGood = true;

    private Compaction(String[] arguments) {
        kafka = arguments[0];
        floe = arguments[1];
        logs = Path.of(arguments[2]);
        List<String> names = List.of(arguments).subList(3, arguments.length);
        Case.ALL.stream().filter(each -> names.isEmpty() || names.contains(each.name())).forEach(cases::add);
    }

    public static void main(String[] arguments) throws Exception {
        Compaction compaction = new Compaction(arguments);
        compaction.run();
        System.exit(compaction.isGood ? 0 : 1);
    }

    private void run() throws Exception {
        for (String address : List.of(kafka, floe)) {
            create(address);
        }
        for (int round = 1; round <= ROUNDS; round++) {
            for (Case each : cases) {
                long ofKafka = write(kafka, each, round);
                long ofFloe = write(floe, each, round);
                if (ofKafka != ofFloe) {
                    throw new IllegalStateException(each.name() + ": other offsets: " + ofKafka + " " + ofFloe);
                }
                ends.put(each.name(), ofKafka);
            }
            compact(true);
            awaitKafka();
            for (Case each : cases) {
                // Tombstones go by themselves in Floe, and with the next pass in Kafka: compared when all are gone.
                if (round == ROUNDS || !each.name().equals("tombstones-go")) {
                    compare(each, round);
                }
            }
            compact(false);
            if (round == 1) {
                deleteRecords();
            }
        }
        writers.values().forEach(Writer::close);
    }

    // ---- writing

    private void create(String address) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (Case each : cases) {
            Map<String, String> configs = new HashMap<>(Map.of("segment.ms", "" + SEGMENT_MS));
            configs.putAll(each.configs());
            configs.putAll(Map.of("cleanup.policy", each.firstPolicy(), "min.cleanable.dirty.ratio", "1.0"));
            topics.add(new NewTopic(each.name(), Optional.of(1), Optional.of((short) 1)).configs(configs));
        }
        try (Admin admin = admin(address)) {
            admin.createTopics(topics).all().get();
        }
    }

    private long write(String address, Case of, int round) throws Exception {
        Writer writer = writers.computeIfAbsent(address + of.name(), name -> new Writer(address, of));
        long atMs = timeOf(round);
        boolean deletes = !of.name().equals("tombstones-go") || round < ROUNDS;
        writer.steps(STEPS[round - 1], atMs, deletes, of.hasKeyless() && round == 1);
        writer.endAll();
        writer.single("last of round " + round, atMs);
        if (of.isAppendTime()) {
            Thread.sleep(1_500);
        }
        long end = writer.single("end of round " + round, beganMs + round * ROUND_MS);
        if (of.transactions() && round < ROUNDS) {
            writer.leaveOpen();
        }
        return end;
    }

    private long timeOf(int round) {
        return beganMs - AGE_MS + (round - 1) * ROUND_MS;
    }

    /** Lets both compact, or not. */
    private void compact(boolean isOn) throws Exception {
        Map<ConfigResource, java.util.Collection<AlterConfigOp>> changes = new HashMap<>();
        for (Case each : cases) {
            var ratio = new AlterConfigOp(new ConfigEntry("min.cleanable.dirty.ratio", isOn ? "0.0" : "1.0"), AlterConfigOp.OpType.SET);
            var policy = new AlterConfigOp(new ConfigEntry("cleanup.policy", each.policy()), AlterConfigOp.OpType.SET);
            changes.put(new ConfigResource(ConfigResource.Type.TOPIC, each.name()), List.of(ratio, policy));
        }
        for (String address : List.of(kafka, floe)) {
            try (Admin admin = admin(address)) {
                admin.incrementalAlterConfigs(changes).all().get();
            }
        }
        Thread.sleep(1_000);
    }

    /** Waits until Kafka's cleaner has noted that it has been up to the end of each round. */
    private void awaitKafka() throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!isCleanedByKafka()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("Kafka does not compact: " + Files.readString(logs.resolve("cleaner-offset-checkpoint")));
            }
            Thread.sleep(100);
        }
    }

    private boolean isCleanedByKafka() throws Exception {
        Path noted = logs.resolve("cleaner-offset-checkpoint");
        List<String> lines = Files.exists(noted) ? Files.readAllLines(noted) : List.of();
        return ends.entrySet().stream().allMatch(end -> lines.contains(end.getKey() + " 0 " + end.getValue()));
    }

    private void deleteRecords() throws Exception {
        for (Case each : cases) {
            if (!each.startsLater()) {
                continue;
            }
            // Between two batches: within one, both keep what is below of it.
            List<String> batches = Dump.of(kafka, each.name(), 0, ends.get(each.name())).stream().filter(line -> line.startsWith("batch")).toList();
            String middle = batches.get(batches.size() / 2);
            long offset = Long.parseLong(middle.substring("batch ".length(), middle.indexOf("..")));
            starts.put(each.name(), offset);
            for (String address : List.of(kafka, floe)) {
                try (Admin admin = admin(address)) {
                    admin.deleteRecords(Map.of(new TopicPartition(each.name(), 0), RecordsToDelete.beforeOffset(offset))).all().get();
                }
            }
        }
    }

    // ---- comparing

    private interface View {
        List<String> of(String address, String topic, long from, long until) throws Exception;
    }

    private void compare(Case of, int round) throws Exception {
        check(of, round, "batches", Dump::of, FLOE_WAIT_MS);
        check(of, round, "committed", (address, topic, from, until) -> consumed(address, topic, from, until, true), 0);
        check(of, round, "uncommitted", (address, topic, from, until) -> consumed(address, topic, from, until, false), 0);
        check(of, round, "times", this::times, 0);
    }

    private void check(Case of, int round, String what, View view, long waitMs) throws Exception {
        long began = System.currentTimeMillis();
        long from = starts.getOrDefault(of.name(), 0L);
        long until = ends.get(of.name());
        List<String> ofKafka = view.of(kafka, of.name(), from, until);
        List<String> found = view.of(floe, of.name(), from, until);
        while (!found.equals(ofKafka) && System.currentTimeMillis() - began < waitMs) {
            Thread.sleep(200);
            found = view.of(floe, of.name(), from, until);
        }
        List<String> wanted = withoutNone(ofKafka, found);
        String note = found.equals(wanted) ? wanted.size() + " lines" : difference(wanted, found);
        isGood &= found.equals(wanted);
        double seconds = (System.currentTimeMillis() - began) / 1000.0;
        System.out.printf("%s %s: round %d: %s | %.1f %s%n", found.equals(wanted) ? "PASS" : "FAIL", of.name(), round, what, seconds, note);
        if (!found.equals(wanted)) {
            System.out.println("-- Kafka has\n" + String.join("\n", wanted) + "\n-- Floe has\n" + String.join("\n", found));
        }
    }

    /**
     * There is a later record, the round's end, for every time. But Kafka looks no further than the first segment whose
     * newest time is late enough, even where that time is of a batch without records, and then answers none.
     */
    private static List<String> withoutNone(List<String> ofKafka, List<String> ofFloe) {
        List<String> wanted = new ArrayList<>(ofKafka);
        for (int at = 0; at < Math.min(wanted.size(), ofFloe.size()); at++) {
            if (wanted.get(at).endsWith(NONE) && !ofFloe.get(at).endsWith(NONE)) {
                wanted.set(at, ofFloe.get(at));
            }
        }
        return wanted;
    }

    private static String difference(List<String> wanted, List<String> found) {
        for (int at = 0; at < Math.max(wanted.size(), found.size()); at++) {
            String ofKafka = at < wanted.size() ? wanted.get(at) : "nothing";
            String ofFloe = at < found.size() ? found.get(at) : "nothing";
            if (!ofKafka.equals(ofFloe)) {
                return "line " + at + ": Kafka has `" + ofKafka.strip() + "`, Floe `" + ofFloe.strip() + "`";
            }
        }
        return "equal";
    }

    /** What a consumer gets from several offsets, each until the first record at or behind the end. */
    private static List<String> consumed(String address, String topic, long from, long until, boolean isCommitted) {
        List<String> lines = new ArrayList<>();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", address, "isolation.level", isCommitted ? "read_committed" : "read_uncommitted",
            "enable.auto.commit", "false", "auto.offset.reset", "none", "fetch.max.wait.ms", "20");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            for (int start = 0; start < STARTS; start++) {
                long next = from + (until - from) * start / STARTS;
                consumer.seek(partition, next);
                lines.add("from " + next);
                long deadline = System.currentTimeMillis() + WAIT_MS;
                while (consumer.position(partition) <= until) {
                    if (System.currentTimeMillis() > deadline) {
                        lines.add("stuck at " + consumer.position(partition));
                        break;
                    }
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        if (record.offset() < until) {
                            lines.add(record.offset() + " " + Dump.text(record.key()) + " = " + Dump.text(record.value()));
                        }
                    }
                }
            }
        }
        return lines;
    }

    /** The first offset at or behind each of many times, where the records' times are their producers'. */
    private List<String> times(String address, String topic, long from, long until) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<Long, String> found = new TreeMap<>();
        try (Admin admin = admin(address)) {
            boolean isAppendTime = cases.stream().anyMatch(each -> each.name().equals(topic) && each.isAppendTime());
            for (int round = 1; round <= ROUNDS && !isAppendTime; round++) {
                for (long offsetMs = -100; offsetMs <= 5_100; offsetMs += 200) {
                    long atMs = timeOf(round) + offsetMs;
                    var answer = admin.listOffsets(Map.of(partition, OffsetSpec.forTimestamp(atMs))).partitionResult(partition).get();
                    String place = answer.offset() + " " + (answer.timestamp() >= beganMs ? "marker" : answer.timestamp());
                    found.put(atMs, atMs + ": " + (answer.offset() < 0 ? NONE : answer.offset() < until ? place : "behind"));
                }
            }
            var earliest = admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get();
            found.put(0L, "earliest: " + earliest.offset());
        }
        return List.copyOf(found.values());
    }

    private static Admin admin(String address) {
        return Admin.create(Map.of("bootstrap.servers", address));
    }
}
