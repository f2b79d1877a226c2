import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

/** ClientCheck BOOTSTRAP [REGEX]: Apache Kafka's own Java client against any broker; one PASS/FAIL line per check. */
public class ClientCheck {
    interface Body { String run() throws Exception; }

    static String boot;
    static Admin admin;
    static final String RUN = Long.toString(System.currentTimeMillis(), 36);
    static final Map<String, Body> checks = new LinkedHashMap<>();

    // ---- helpers -------------------------------------------------------------------------------------------------
    static void that(boolean ok, String why, Object... a) {
        if (!ok) throw new AssertionError(String.format(why, a));
    }

    static void same(String what, Object want, Object got) {
        that(Objects.equals(want, got), "%s: wanted <%s>, got <%s>", what, want, got);
    }

    static <T> T get(Future<T> f) throws Exception {
        try {
            return f.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof Exception c) throw c;
            throw e;
        }
    }

    static void until(String what, Callable<Boolean> f) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (!f.call()) {
            that(System.nanoTime() < end, "not within 40 s: %s", what);
            Thread.sleep(100);
        }
    }

    static <X extends Throwable> X fails(Class<X> type, Body b) throws Exception {
        try {
            b.run();
        } catch (Throwable t) {
            for (Throwable c = t; c != null; c = c.getCause()) if (type.isInstance(c)) return type.cast(c);
            throw new AssertionError("wanted " + type.getSimpleName() + ", got " + t, t);
        }
        throw new AssertionError("wanted " + type.getSimpleName() + ", got no failure");
    }

    static String topic(String name, int partitions, String... conf) throws Exception {
        String t = "jc-" + RUN + "-" + name;
        Map<String, String> c = new HashMap<>();
        for (int i = 0; i < conf.length; i += 2) c.put(conf[i], conf[i + 1]);
        get(admin.createTopics(List.of(new NewTopic(t, partitions, (short) 1).configs(c))).all());
        return t;
    }

    static KafkaProducer<byte[], byte[]> producer(Object... conf) {
        return new KafkaProducer<>(conf(new HashMap<>(Map.of("bootstrap.servers", boot, "enable.idempotence", true,
            "acks", "all", "linger.ms", 5)), conf), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Object... conf) {
        return new KafkaConsumer<>(conf(new HashMap<>(Map.of("bootstrap.servers", boot, "auto.offset.reset", "earliest",
            "enable.auto.commit", false)), conf), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Map<String, Object> conf(Map<String, Object> m, Object... kv) {
        for (int i = 0; i < kv.length; i += 2) m.put((String) kv[i], kv[i + 1]);
        return m;
    }

    static byte[] b(String s) { return s == null ? null : s.getBytes(UTF_8); }
    static String s(byte[] x) { return x == null ? null : new String(x, UTF_8); }
    static TopicPartition tp(String t, int p) { return new TopicPartition(t, p); }

    static void fill(String t, int p, int n, String prefix) throws Exception {
        try (var pr = producer()) {
            for (int i = 0; i < n; i++) pr.send(new ProducerRecord<>(t, p, null, b(prefix + i)));
            pr.flush();
        }
    }

    /** All values of a partition, from the start to the end offset the isolation level shows. */
    static List<String> values(String t, int p, String isolation) {
        try (var c = consumer("isolation.level", isolation)) {
            c.assign(List.of(tp(t, p)));
            c.seekToBeginning(List.of(tp(t, p)));
            long end = c.endOffsets(List.of(tp(t, p))).get(tp(t, p));
            List<String> out = new ArrayList<>();
            long stop = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            while (c.position(tp(t, p)) < end) {
                that(System.nanoTime() < stop, "stuck at %d of %d", c.position(tp(t, p)), end);
                c.poll(Duration.ofMillis(200)).forEach(r -> out.add(s(r.value())));
            }
            return out;
        }
    }

    static long offset(TopicPartition tp, OffsetSpec spec, IsolationLevel iso) throws Exception {
        return get(admin.listOffsets(Map.of(tp, spec), new ListOffsetsOptions(iso)).partitionResult(tp)).offset();
    }

    static String config(ConfigResource r, String name) throws Exception {
        ConfigEntry e = get(admin.describeConfigs(List.of(r)).all()).get(r).get(name);
        return e == null ? null : e.value();
    }

    static void setConfig(ConfigResource r, AlterConfigOp.OpType op, String k, String v) throws Exception {
        get(admin.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry(k, v), op)))).all());
    }

    // ---- a group member on its own thread, committing what it has processed ---------------------------------------
    static class Member extends Thread {
        final KafkaConsumer<byte[], byte[]> c;
        final Collection<String> sink;
        final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        volatile Set<TopicPartition> mine = Set.of();
        volatile boolean stop;
        volatile Throwable error;
        volatile int rebalances;

        Member(Object subscription, Collection<String> sink, Object... conf) {
            this.sink = sink;
            c = consumer(conf);
            var l = new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> ps) {
                    var commit = new HashMap<>(done);
                    commit.keySet().retainAll(ps);
                    if (!commit.isEmpty()) c.commitSync(commit);
                    done.keySet().removeAll(ps);
                }

                public void onPartitionsAssigned(Collection<TopicPartition> ps) { rebalances++; }
                public void onPartitionsLost(Collection<TopicPartition> ps) { done.keySet().removeAll(ps); }
            };
            if (subscription instanceof Pattern p) c.subscribe(p, l);
            else if (subscription instanceof SubscriptionPattern p) c.subscribe(p, l);
            else c.subscribe(List.of((String) subscription), l);
            start();
        }

        public void run() {
            try (c) {
                while (!stop) {
                    for (var r : c.poll(Duration.ofMillis(100))) {
                        sink.add(r.topic() + "/" + r.partition() + "/" + r.offset());
                        done.put(tp(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                    }
                    mine = Set.copyOf(c.assignment());
                }
                if (!done.isEmpty()) c.commitSync(new HashMap<>(done));
                done.clear();
            } catch (Throwable t) {
                error = t;
            }
            mine = Set.of();
        }

        void end() throws Exception {
            stop = true;
            join(30_000);
            that(!isAlive(), "member does not close");
            if (error != null) throw new AssertionError("member failed: " + error, error);
        }
    }

    static void balanced(List<Member> ms, int partitions) throws Exception {
        until(partitions + " partitions over " + ms.size() + " members, evenly", () -> {
            var all = new HashSet<TopicPartition>();
            int n = 0;
            for (Member m : ms) {
                if (m.error != null) throw new AssertionError("member failed: " + m.error, m.error);
                if (m.mine.size() != partitions / ms.size()) return false;
                all.addAll(m.mine);
                n += m.mine.size();
            }
            return n == partitions && all.size() == partitions;
        });
    }

    static String group(String name, Object... conf) throws Exception {
        int parts = 6;
        String t = topic(name, parts), g = "g-" + t;
        Object[] cc = Arrays.copyOf(conf, conf.length + 2);
        cc[conf.length] = "group.id";
        cc[conf.length + 1] = g;
        var seen = new ConcurrentLinkedQueue<String>();
        var feeding = new boolean[] {true};
        int[] sent = {0};
        var feeder = new Thread(() -> {
            try (var p = producer()) {
                while (feeding[0]) {
                    for (int i = 0; i < 50; i++) p.send(new ProducerRecord<>(t, sent[0]++ % parts, null, b("x")));
                    p.flush();
                    Thread.sleep(10);
                }
            } catch (InterruptedException e) {
                throw new RuntimeException(e);
            }
        });
        var ms = new ArrayList<Member>();
        feeder.start();
        try {
            for (int i = 0; i < 3; i++) ms.add(new Member(t, seen, cc));
            balanced(ms, parts);
            var d = get(admin.describeConsumerGroups(List.of(g)).all()).get(g);
            same("described members", 3, d.members().size());
            same("described partitions", parts, d.members().stream().mapToInt(m -> m.assignment().topicPartitions().size()).sum());
            same("state", GroupState.STABLE, d.groupState());
            ms.remove(0).end();
            balanced(ms, parts);
            ms.add(new Member(t, seen, cc));
            balanced(ms, parts);
            feeding[0] = false;
            feeder.join();
            until("all " + sent[0] + " records seen, now " + seen.size(), () -> new HashSet<>(seen).size() == sent[0]);
        } finally {
            feeding[0] = false;
            for (Member m : ms) m.stop = true;
            for (Member m : ms) m.join(30_000);
        }
        for (Member m : ms) m.end();
        same("records processed (each once)", sent[0], seen.size());
        var off = get(admin.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata());
        same("committed sum", (long) sent[0], off.values().stream().mapToLong(OffsetAndMetadata::offset).sum());
        until("group empty", () -> get(admin.describeConsumerGroups(List.of(g)).all()).get(g).groupState() == GroupState.EMPTY);
        get(admin.deleteConsumerGroups(List.of(g)).all());
        return sent[0] + " records, type " + g(conf);
    }

    static String g(Object[] conf) { return Arrays.stream(conf).map(String::valueOf).collect(Collectors.joining(" ")); }

    static String compression(String codec) throws Exception {
        int n = 10_000;
        String t = topic("z-" + codec, 1);
        long t0 = 1_700_000_000_000L;
        try (var p = producer("compression.type", codec, "batch.size", 65536)) {
            var fs = new ArrayList<Future<RecordMetadata>>();
            for (int i = 0; i < n; i++) {
                var h = i % 7 == 0 ? List.of(new RecordHeader("h", b("v" + i)), new RecordHeader("h", null), new RecordHeader("e", new byte[0]))
                    : List.<RecordHeader>of();
                fs.add(p.send(new ProducerRecord<>(t, 0, t0 + i, i % 5 == 0 ? null : b("k" + i), i % 11 == 0 ? null : b("value-" + i + "-" + "ab".repeat(i % 40)),
                    new ArrayList<>(h))));
            }
            for (int i = 0; i < n; i++) same("offset of send", (long) i, get(fs.get(i)).offset());
        }
        int i = 0;
        try (var c = consumer("check.crcs", true)) {
            c.assign(List.of(tp(t, 0)));
            long stop = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (i < n) {
                that(System.nanoTime() < stop, "only %d records read", i);
                for (var r : c.poll(Duration.ofMillis(500))) {
                    same("offset", (long) i, r.offset());
                    same("timestamp", t0 + i, r.timestamp());
                    same("timestamp type", TimestampType.CREATE_TIME, r.timestampType());
                    same("key", i % 5 == 0 ? null : "k" + i, s(r.key()));
                    same("value", i % 11 == 0 ? null : "value-" + i + "-" + "ab".repeat(i % 40), s(r.value()));
                    var hs = r.headers().toArray();
                    same("headers", i % 7 == 0 ? 3 : 0, hs.length);
                    if (hs.length == 3) {
                        same("header 0", "h=v" + i, hs[0].key() + "=" + s(hs[0].value()));
                        same("header 1", "h=null", hs[1].key() + "=" + s(hs[1].value()));
                        same("header 2", "e=", hs[2].key() + "=" + s(hs[2].value()));
                    }
                    i++;
                }
            }
            same("end", (long) n, c.endOffsets(List.of(tp(t, 0))).get(tp(t, 0)));
        }
        return n + " records";
    }

    // ---- the checks ----------------------------------------------------------------------------------------------
    static void define() {
        checks.put("admin.describe-cluster", () -> {
            var d = admin.describeCluster();
            that(!get(d.nodes()).isEmpty(), "no nodes");
            that(get(d.clusterId()) != null, "no cluster id");
            that(get(d.controller()) != null, "no controller");
            return get(d.nodes()).size() + " node(s), cluster " + get(d.clusterId());
        });
        checks.put("admin.describe-features", () -> {
            var f = get(admin.describeFeatures().featureMetadata());
            return new TreeMap<>(f.finalizedFeatures()).toString();
        });
        checks.put("admin.create-describe-list-delete-topic", () -> {
            String t = topic("crud", 3, "retention.ms", "3600000");
            fails(TopicExistsException.class, () -> topic("crud", 3));
            fails(InvalidTopicException.class, () -> topic("bad name!", 1));
            fails(InvalidPartitionsException.class, () -> topic("none", 0));
            fails(InvalidConfigurationException.class, () -> topic("badconf", 1, "no.such.config", "1"));
            var d = get(admin.describeTopics(List.of(t)).allTopicNames()).get(t);
            same("partitions", 3, d.partitions().size());
            that(!d.topicId().equals(Uuid.ZERO_UUID), "no topic id");
            for (var p : d.partitions()) that(p.leader() != null && !p.isr().isEmpty(), "partition %s", p);
            same("by id", t, get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(d.topicId()))).allTopicIds()).get(d.topicId()).name());
            that(get(admin.listTopics().names()).contains(t), "not listed");
            get(admin.deleteTopics(List.of(t)).all());
            until("deleted", () -> !get(admin.listTopics().names()).contains(t));
            fails(UnknownTopicOrPartitionException.class, () -> "" + get(admin.describeTopics(List.of(t)).allTopicNames()));
            fails(UnknownTopicOrPartitionException.class, () -> "" + get(admin.deleteTopics(List.of(t)).all()));
            var a = get(admin.createTopics(List.of(new NewTopic(t, 1, (short) 1))).topicId(t));
            that(!a.equals(d.topicId()), "same id after re-creation");
            return "id " + a;
        });
        checks.put("admin.replication-factor", () -> {
            fails(InvalidReplicationFactorException.class,
                () -> "" + get(admin.createTopics(List.of(new NewTopic("jc-" + RUN + "-rf", 1, (short) 9))).all()));
            return "";
        });
        checks.put("admin.topic-configs", () -> {
            String t = topic("conf", 1, "retention.ms", "3600000");
            var r = new ConfigResource(ConfigResource.Type.TOPIC, t);
            same("set at creation", "3600000", config(r, "retention.ms"));
            setConfig(r, AlterConfigOp.OpType.SET, "retention.ms", "7200000");
            until("altered", () -> "7200000".equals(config(r, "retention.ms")));
            setConfig(r, AlterConfigOp.OpType.DELETE, "retention.ms", null);
            until("default again", () -> "604800000".equals(config(r, "retention.ms")));
            setConfig(r, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
            until("appended", () -> Set.of(config(r, "cleanup.policy").split(",")).equals(Set.of("delete", "compact")));
            fails(InvalidConfigurationException.class, () -> {
                setConfig(r, AlterConfigOp.OpType.SET, "retention.ms", "no number");
                return "";
            });
            var n = get(admin.describeCluster().nodes()).iterator().next();
            var br = new ConfigResource(ConfigResource.Type.BROKER, n.idString());
            that(!get(admin.describeConfigs(List.of(br)).all()).get(br).entries().isEmpty(), "no broker configs");
            return "";
        });
        checks.put("admin.create-partitions", () -> {
            String t = topic("parts", 1);
            get(admin.createPartitions(Map.of(t, NewPartitions.increaseTo(4))).all());
            until("4 partitions", () -> get(admin.describeTopics(List.of(t)).allTopicNames()).get(t).partitions().size() == 4);
            fails(InvalidPartitionsException.class, () -> "" + get(admin.createPartitions(Map.of(t, NewPartitions.increaseTo(2))).all()));
            until("write to partition 3", () -> {
                try {
                    fill(t, 3, 5, "p");
                    return true;
                } catch (RuntimeException e) {
                    return false;
                }
            });
            same("values", 5, values(t, 3, "read_committed").size());
            return "";
        });
        checks.put("admin.list-offsets", () -> {
            String t = topic("offs", 1);
            var p = tp(t, 0);
            var iso = IsolationLevel.READ_UNCOMMITTED;
            same("empty earliest", 0L, offset(p, OffsetSpec.earliest(), iso));
            same("empty latest", 0L, offset(p, OffsetSpec.latest(), iso));
            same("empty by time", -1L, offset(p, OffsetSpec.forTimestamp(5), iso));
            try (var pr = producer()) {
                for (int i = 0; i < 100; i++) pr.send(new ProducerRecord<>(t, 0, 1_000_000L + i * 10, null, b("v")));
            }
            same("latest", 100L, offset(p, OffsetSpec.latest(), iso));
            same("by exact time", 50L, offset(p, OffsetSpec.forTimestamp(1_000_500), iso));
            same("by time between", 51L, offset(p, OffsetSpec.forTimestamp(1_000_501), iso));
            same("by time before", 0L, offset(p, OffsetSpec.forTimestamp(1), iso));
            same("by time after", -1L, offset(p, OffsetSpec.forTimestamp(9_999_999), iso));
            same("max timestamp", 99L, offset(p, OffsetSpec.maxTimestamp(), iso));
            try (var c = consumer()) {
                var o = c.offsetsForTimes(Map.of(p, 1_000_500L)).get(p);
                same("offsetsForTimes", "50@1000500", o.offset() + "@" + o.timestamp());
            }
            return "";
        });
        checks.put("admin.delete-records", () -> {
            String t = topic("delrec", 1);
            fill(t, 0, 100, "v");
            same("low watermark", 40L, get(admin.deleteRecords(Map.of(tp(t, 0), RecordsToDelete.beforeOffset(40))).lowWatermarks().get(tp(t, 0))).lowWatermark());
            same("earliest", 40L, offset(tp(t, 0), OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
            var v = values(t, 0, "read_uncommitted");
            same("left", "60 from v40", v.size() + " from " + v.get(0));
            fails(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, () -> "" + get(admin.deleteRecords(Map.of(tp(t, 0), RecordsToDelete.beforeOffset(101))).all()));
            get(admin.deleteRecords(Map.of(tp(t, 0), RecordsToDelete.beforeOffset(-1))).all());
            same("earliest after all", 100L, offset(tp(t, 0), OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
            return "";
        });
        checks.put("admin.group-offsets", () -> {
            String t = topic("goffs", 2), g = "g-" + t;
            fill(t, 0, 10, "v");
            get(admin.alterConsumerGroupOffsets(g, Map.of(tp(t, 0), new OffsetAndMetadata(7, "note"), tp(t, 1), new OffsetAndMetadata(0))).all());
            var o = get(admin.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata());
            same("offset", 7L, o.get(tp(t, 0)).offset());
            same("metadata", "note", o.get(tp(t, 0)).metadata());
            try (var c = consumer("group.id", g)) {
                same("committed()", 7L, c.committed(Set.of(tp(t, 0))).get(tp(t, 0)).offset());
                c.assign(List.of(tp(t, 0)));
                same("position", 7L, c.position(tp(t, 0)));
            }
            that(get(admin.listGroups().all()).stream().anyMatch(x -> x.groupId().equals(g)), "group not listed");
            get(admin.deleteConsumerGroupOffsets(g, Set.of(tp(t, 1))).all());
            same("one deleted", Set.of(tp(t, 0)), get(admin.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata()).keySet());
            get(admin.deleteConsumerGroups(List.of(g)).all());
            until("group gone", () -> get(admin.listGroups().all()).stream().noneMatch(x -> x.groupId().equals(g)));
            fails(GroupIdNotFoundException.class, () -> "" + get(admin.deleteConsumerGroups(List.of(g)).all()));
            return "";
        });
        for (String z : List.of("none", "gzip", "snappy", "lz4", "zstd")) checks.put("produce-consume." + z, () -> compression(z));
        checks.put("produce.log-append-time", () -> {
            String t = topic("lat", 1, "message.timestamp.type", "LogAppendTime");
            long now = System.currentTimeMillis();
            try (var p = producer()) {
                long ts = get(p.send(new ProducerRecord<>(t, 0, 12345L, null, b("x")))).timestamp();
                that(Math.abs(ts - now) < 60_000, "ack timestamp %d", ts);
            }
            try (var c = consumer()) {
                c.assign(List.of(tp(t, 0)));
                var r = c.poll(Duration.ofSeconds(10)).iterator().next();
                same("type", TimestampType.LOG_APPEND_TIME, r.timestampType());
                that(Math.abs(r.timestamp() - now) < 60_000, "timestamp %d", r.timestamp());
            }
            return "";
        });
        checks.put("produce.too-large", () -> {
            String t = topic("big", 1, "max.message.bytes", "2000");
            try (var p = producer()) {
                fails(RecordTooLargeException.class, () -> "" + get(p.send(new ProducerRecord<>(t, 0, null, new byte[5000]))));
                same("next offset", 0L, get(p.send(new ProducerRecord<>(t, 0, null, new byte[500]))).offset());
            }
            return "";
        });
        checks.put("produce.acks-0-and-1", () -> {
            String t = topic("acks", 1);
            for (String a : List.of("0", "1"))
                try (var p = producer("acks", a, "enable.idempotence", false)) {
                    for (int i = 0; i < 500; i++) p.send(new ProducerRecord<>(t, 0, null, b(a)));
                }
            until("1000 records", () -> offset(tp(t, 0), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED) == 1000);
            return "";
        });
        checks.put("consume.out-of-range-and-seek", () -> {
            String t = topic("seek", 1);
            fill(t, 0, 100, "v");
            try (var c = consumer("auto.offset.reset", "none", "max.poll.records", 1)) {
                c.assign(List.of(tp(t, 0)));
                c.seek(tp(t, 0), 500);
                var e = fails(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> {
                    for (int i = 0; i < 50; i++) c.poll(Duration.ofMillis(200));
                    return "";
                });
                c.seek(tp(t, 0), 77);
                ConsumerRecords<byte[], byte[]> r = ConsumerRecords.empty();
                for (int i = 0; i < 50 && r.isEmpty(); i++) r = c.poll(Duration.ofMillis(200));
                same("at 77", "v77", s(r.iterator().next().value()));
                return e.getClass().getSimpleName();
            }
        });
        checks.put("group.classic-range-3-members", () -> group("gr", "group.protocol", "classic", "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor"));
        checks.put("group.classic-cooperative-3-members", () -> group("gc", "group.protocol", "classic", "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
        checks.put("group.consumer-kip848-3-members", () -> group("gk", "group.protocol", "consumer"));
        checks.put("group.consumer-kip848-range-assignor", () -> group("gkr", "group.protocol", "consumer", "group.remote.assignor", "range"));
        for (String proto : List.of("classic", "consumer"))
            checks.put("group." + proto + "-static-member", () -> {
                String t = topic("static-" + proto, 2), g = "g-" + t;
                fill(t, 0, 10, "a");
                fill(t, 1, 10, "b");
                var seen = new ConcurrentLinkedQueue<String>();
                var ms = new ArrayList<Member>();
                Object[] c = {"group.protocol", proto, "group.id", g, "group.instance.id", "one"};
                Object[] d = {"group.protocol", proto, "group.id", g, "group.instance.id", "two"};
                ms.add(new Member(t, seen, c));
                ms.add(new Member(t, seen, d));
                balanced(ms, 2);
                var was = ms.get(1).mine;
                int before = ms.get(0).rebalances;
                ms.remove(1).end();
                ms.add(new Member(t, seen, d));
                balanced(ms, 2);
                same("same partition after restart", was, ms.get(1).mine);
                same("other member's rebalances", before, ms.get(0).rebalances);
                for (Member m : ms) m.end();
                same("records", 20, seen.size());
                return "";
            });
        checks.put("group.migrates-online-and-back", () -> {
            String t = topic("migrate", 6), g = "g-" + t;
            for (int p = 0; p < 6; p++) fill(t, p, 20, "p" + p + "-");
            var seen = new ConcurrentLinkedQueue<String>();
            Object[] old = {"group.protocol", "classic", "group.id", g, "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"};
            Object[] now = {"group.protocol", "consumer", "group.id", g};
            Callable<GroupType> type = () -> get(admin.describeConsumerGroups(List.of(g)).all()).get(g).type();
            var ms = new ArrayList<Member>();
            for (int i = 0; i < 2; i++) ms.add(new Member(t, seen, old));
            balanced(ms, 6);
            same("type", GroupType.CLASSIC, type.call());
            ms.add(new Member(t, seen, now));
            balanced(ms, 6);
            same("type with both", GroupType.CONSUMER, type.call());
            for (int i = 0; i < 2; i++) ms.remove(0).end();
            balanced(ms, 6);
            ms.add(new Member(t, seen, old));
            balanced(ms, 6);
            ms.remove(0).end();
            balanced(ms, 6);
            same("type at the end", GroupType.CLASSIC, type.call());
            until("all seen, now " + seen.size(), () -> seen.size() >= 120);
            for (Member m : ms) m.end();
            same("records (each once)", 120, seen.size());
            return "";
        });
        for (String proto : List.of("classic", "consumer"))
            checks.put("group.regex-subscription-" + proto, () -> {
                String a = topic("re-" + proto + "-a", 1), x = topic("rx-" + proto, 1), g = "g-re-" + proto + RUN;
                fill(a, 0, 5, "a");
                fill(x, 0, 5, "x");
                String re = "jc-" + RUN + "-re-" + proto + "-.*";
                var seen = new ConcurrentLinkedQueue<String>();
                var m = new Member(proto.equals("classic") ? Pattern.compile(re) : new SubscriptionPattern(re), seen,
                    "group.protocol", proto, "group.id", g, "metadata.max.age.ms", 500);
                try {
                    until("topic a read", () -> seen.size() == 5);
                    String bb = topic("re-" + proto + "-b", 2); // matched once it exists
                    fill(bb, 1, 5, "b");
                    until("topic b read, seen " + seen.size(), () -> seen.size() == 10);
                    same("assigned", Set.of(tp(a, 0), tp(bb, 0), tp(bb, 1)), m.mine);
                } finally {
                    m.end();
                }
                return "";
            });
        checks.put("txn.commit-abort-isolation", () -> {
            String t = topic("txn", 1);
            var p0 = tp(t, 0);
            try (var p = producer("transactional.id", "tx-" + t)) {
                p.initTransactions();
                p.beginTransaction();
                for (int i = 0; i < 10; i++) p.send(new ProducerRecord<>(t, 0, null, b("c" + i)));
                p.commitTransaction();
                p.beginTransaction();
                for (int i = 0; i < 10; i++) p.send(new ProducerRecord<>(t, 0, null, b("a" + i)));
                p.flush();
                same("last stable offset while open", 11L, offset(p0, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
                same("high watermark while open", 21L, offset(p0, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
                same("read committed while open", 10, values(t, 0, "read_committed").size());
                p.abortTransaction();
                p.beginTransaction();
                for (int i = 0; i < 10; i++) p.send(new ProducerRecord<>(t, 0, null, b("d" + i)));
                p.commitTransaction();
            }
            var want = IntStream.range(0, 20).mapToObj(i -> i < 10 ? "c" + i : "d" + (i - 10)).toList();
            same("read committed", want, values(t, 0, "read_committed"));
            same("read uncommitted", 30, values(t, 0, "read_uncommitted").size());
            same("end offset counts 3 markers", 33L, offset(p0, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
            return "";
        });
        checks.put("txn.several-partitions-and-topics", () -> {
            String t = topic("txm", 3), u = topic("txn2", 1);
            try (var p = producer("transactional.id", "tx-" + t)) {
                p.initTransactions();
                for (int k = 0; k < 20; k++) {
                    p.beginTransaction();
                    for (int i = 0; i < 3; i++) p.send(new ProducerRecord<>(t, i, null, b((k % 2 == 0 ? "c" : "a") + k)));
                    p.send(new ProducerRecord<>(u, 0, null, b((k % 2 == 0 ? "c" : "a") + k)));
                    if (k % 2 == 0) p.commitTransaction();
                    else p.abortTransaction();
                }
            }
            var want = IntStream.range(0, 10).mapToObj(i -> "c" + 2 * i).toList();
            for (int i = 0; i < 3; i++) same("partition " + i, want, values(t, i, "read_committed"));
            same("topic 2", want, values(u, 0, "read_committed"));
            return "";
        });
        checks.put("txn.send-offsets", () -> {
            String in = topic("soi", 1), out = topic("soo", 1), g = "g-" + in;
            fill(in, 0, 20, "v");
            try (var p = producer("transactional.id", "tx-" + in); var c = consumer("group.id", g, "isolation.level", "read_committed", "max.poll.records", 5)) {
                p.initTransactions();
                c.subscribe(List.of(in));
                int round = 0, done = 0;
                while (done < 20) {
                    var rs = c.poll(Duration.ofMillis(500));
                    if (rs.isEmpty()) {
                        that(++round < 80, "no records");
                        continue;
                    }
                    boolean abort = done == 5 && round < 1000;
                    p.beginTransaction();
                    for (var r : rs) p.send(new ProducerRecord<>(out, 0, null, b("out-" + s(r.value()))));
                    p.sendOffsetsToTransaction(Map.of(tp(in, 0), new OffsetAndMetadata(done + rs.count())), c.groupMetadata());
                    if (abort) {
                        round = 1000;
                        p.abortTransaction();
                        same("offset after abort", (long) done, c.committed(Set.of(tp(in, 0))).get(tp(in, 0)).offset());
                        c.seek(tp(in, 0), done);
                        continue;
                    }
                    p.commitTransaction();
                    done += rs.count();
                    same("offset after commit", (long) done, c.committed(Set.of(tp(in, 0))).get(tp(in, 0)).offset());
                }
            }
            same("output", IntStream.range(0, 20).mapToObj(i -> "out-v" + i).toList(), values(out, 0, "read_committed"));
            same("uncommitted output", 25, values(out, 0, "read_uncommitted").size());
            return "";
        });
        checks.put("txn.fencing", () -> {
            String t = topic("fence", 1);
            try (var a = producer("transactional.id", "tx-" + t); var bp = producer("transactional.id", "tx-" + t)) {
                a.initTransactions();
                a.beginTransaction();
                get(a.send(new ProducerRecord<>(t, 0, null, b("old"))));
                bp.initTransactions(); // aborts and fences a
                var e = fails(ProducerFencedException.class, () -> {
                    a.commitTransaction();
                    return "";
                });
                bp.beginTransaction();
                bp.send(new ProducerRecord<>(t, 0, null, b("new")));
                bp.commitTransaction();
                same("only the new producer's", List.of("new"), values(t, 0, "read_committed"));
                get(admin.fenceProducers(List.of("tx-" + t)).all());
                // a write with an old epoch: Kafka answers INVALID_PRODUCER_EPOCH, older ones PRODUCER_FENCED
                bp.beginTransaction();
                var w = fails(ApiException.class, () -> "" + get(bp.send(new ProducerRecord<>(t, 0, null, b("x")))));
                that(w instanceof InvalidProducerEpochException || w instanceof ProducerFencedException, "write of a fenced producer: %s", w);
                same("still only", List.of("new"), values(t, 0, "read_committed"));
                return e.getClass().getSimpleName() + ", then " + w.getClass().getSimpleName();
            }
        });
        checks.put("txn.timeout-abort", () -> {
            String t = topic("txto", 1);
            try (var p = producer("transactional.id", "tx-" + t, "transaction.timeout.ms", 2000)) {
                p.initTransactions();
                p.beginTransaction();
                get(p.send(new ProducerRecord<>(t, 0, null, b("x"))));
                until("broker aborts it: last stable offset moves", () -> offset(tp(t, 0), OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) == 2);
                fails(KafkaException.class, () -> {
                    p.send(new ProducerRecord<>(t, 0, null, b("y")));
                    p.commitTransaction();
                    return "";
                });
                p.close(Duration.ZERO);
            }
            same("nothing visible", List.of(), values(t, 0, "read_committed"));
            return "";
        });
        checks.put("admin.producers-and-transactions", () -> {
            String t = topic("dp", 1), tx = "tx-" + t;
            try (var p = producer("transactional.id", tx)) {
                p.initTransactions();
                p.beginTransaction();
                get(p.send(new ProducerRecord<>(t, 0, null, b("x"))));
                var ps = get(admin.describeProducers(List.of(tp(t, 0))).partitionResult(tp(t, 0))).activeProducers();
                same("producers", 1, ps.size());
                same("open since offset", 0L, ps.get(0).currentTransactionStartOffset().getAsLong());
                var l = get(admin.listTransactions().all()).stream().filter(x -> x.transactionalId().equals(tx)).toList();
                same("listed", 1, l.size());
                same("listed state", TransactionState.ONGOING, l.get(0).state());
                same("listed producer id", ps.get(0).producerId(), l.get(0).producerId());
                var d = get(admin.describeTransactions(List.of(tx)).description(tx));
                same("described state", TransactionState.ONGOING, d.state());
                same("described partitions", Set.of(tp(t, 0)), d.topicPartitions());
                p.commitTransaction();
                until("complete", () -> get(admin.describeTransactions(List.of(tx)).description(tx)).state() == TransactionState.COMPLETE_COMMIT);
                until("no open transaction", () -> get(admin.describeProducers(List.of(tp(t, 0))).partitionResult(tp(t, 0))).activeProducers().stream()
                    .allMatch(x -> x.currentTransactionStartOffset().isEmpty()));
            }
            return "";
        });
        checks.put("share.accept-release-reject", () -> {
            String t = topic("share", 2), g = "sg-" + t;
            var gr = new ConfigResource(ConfigResource.Type.GROUP, g);
            setConfig(gr, AlterConfigOp.OpType.SET, "share.auto.offset.reset", "earliest");
            int n = 60;
            for (int i = 0; i < 2; i++) fill(t, i, n / 2, "p" + i + "-");
            var count = new ConcurrentHashMap<String, Integer>();
            var accepted = ConcurrentHashMap.<String>newKeySet();
            var errors = new ConcurrentLinkedQueue<Throwable>();
            var stop = new boolean[1];
            var ts = new ArrayList<Thread>();
            for (int k = 0; k < 2; k++) {
                var th = new Thread(() -> {
                    var cc = conf(new HashMap<>(), "bootstrap.servers", boot, "group.id", g, "share.acknowledgement.mode", "explicit", "max.poll.records", 10);
                    try (var c = new KafkaShareConsumer<>(cc, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                        c.subscribe(List.of(t));
                        while (!stop[0]) {
                            for (var r : c.poll(Duration.ofMillis(300))) {
                                String v = s(r.value());
                                int i = Integer.parseInt(v.substring(3));
                                int times = count.merge(v, 1, Integer::sum);
                                same("delivery count of " + v, (short) times, r.deliveryCount().get());
                                if (i % 3 == 1 && times == 1) c.acknowledge(r, AcknowledgeType.RELEASE);
                                else if (i % 3 == 2) c.acknowledge(r, AcknowledgeType.REJECT);
                                else {
                                    c.acknowledge(r, AcknowledgeType.ACCEPT);
                                    accepted.add(v);
                                }
                            }
                            for (var e : c.commitSync().entrySet()) if (e.getValue().isPresent()) throw e.getValue().get();
                        }
                    } catch (Throwable e) {
                        errors.add(e);
                    }
                });
                th.start();
                ts.add(th);
            }
            try {
                until("40 accepted", () -> accepted.size() == n * 2 / 3 || !errors.isEmpty());
                var d = get(admin.describeShareGroups(List.of(g)).all()).get(g);
                that(errors.isEmpty(), "consumer: %s", errors.peek());
                same("members", 2, d.members().size());
                Thread.sleep(1500); // nothing more may come
            } finally {
                stop[0] = true;
                for (Thread x : ts) x.join(30_000);
            }
            that(errors.isEmpty(), "consumer: %s", errors.peek());
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < n / 2; k++) same("deliveries of p" + i + "-" + k, k % 3 == 1 ? 2 : 1, count.get("p" + i + "-" + k));
            // Kafka's listed start offsets may lag behind the last acknowledgement, so a new consumer is the judge
            var offs = get(admin.listShareGroupOffsets(Map.of(g, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(g));
            same("partitions with offsets", Set.of(tp(t, 0), tp(t, 1)), offs.keySet());
            var cc = conf(new HashMap<>(), "bootstrap.servers", boot, "group.id", g, "share.acknowledgement.mode", "implicit");
            try (var c = new KafkaShareConsumer<>(cc, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                c.subscribe(List.of(t));
                fill(t, 0, 1, "last-");
                var got = new ArrayList<String>();
                until("the one new record", () -> {
                    c.poll(Duration.ofMillis(300)).forEach(r -> got.add(s(r.value())));
                    return !got.isEmpty();
                });
                c.poll(Duration.ofMillis(1000)).forEach(r -> got.add(s(r.value())));
                same("a new consumer gets", List.of("last-0"), got);
            }
            that(get(admin.listGroups(ListGroupsOptions.forShareGroups()).all()).stream().anyMatch(x -> x.groupId().equals(g)), "not listed");
            return n + " records, " + accepted.size() + " accepted, start offsets " + offs.values().stream().map(o -> o == null ? "none" : "" + o.startOffset()).toList();
        });
        checks.put("share.close-releases", () -> {
            String t = topic("slock", 1), g = "sg-" + t;
            var gr = new ConfigResource(ConfigResource.Type.GROUP, g);
            setConfig(gr, AlterConfigOp.OpType.SET, "share.auto.offset.reset", "earliest");
            fill(t, 0, 1, "x");
            var cc = conf(new HashMap<>(), "bootstrap.servers", boot, "group.id", g, "share.acknowledgement.mode", "explicit");
            try (var a = new KafkaShareConsumer<>(cc, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                a.subscribe(List.of(t));
                until("first delivery", () -> !a.poll(Duration.ofMillis(300)).isEmpty());
            } // closing without acknowledging releases it
            try (var c = new KafkaShareConsumer<>(cc, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                c.subscribe(List.of(t));
                until("second delivery", () -> {
                    for (var r : c.poll(Duration.ofMillis(300))) {
                        same("delivery count", (short) 2, r.deliveryCount().get());
                        c.acknowledge(r, AcknowledgeType.ACCEPT);
                        c.commitSync();
                        return true;
                    }
                    return false;
                });
            }
            return "";
        });
        checks.put("admin.delete-own-topics", () -> {
            var mine = get(admin.listTopics().names()).stream().filter(x -> x.startsWith("jc-" + RUN + "-")).toList();
            get(admin.deleteTopics(mine).all());
            until("gone", () -> get(admin.listTopics().names()).stream().noneMatch(x -> x.startsWith("jc-" + RUN + "-")));
            return mine.size() + " topics";
        });
    }

    public static void main(String[] a) {
        boot = a[0];
        var only = Pattern.compile(a.length > 1 ? a[1] : ".*");
        admin = Admin.create(Map.of("bootstrap.servers", boot, "request.timeout.ms", 20_000, "default.api.timeout.ms", 25_000));
        define();
        int pass = 0, fail = 0;
        var pool = Executors.newCachedThreadPool(r -> {
            var t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        long start = System.nanoTime();
        for (var e : checks.entrySet()) {
            if (!only.matcher(e.getKey()).find()) continue;
            long t0 = System.nanoTime();
            String out, ok = "PASS";
            try {
                out = pool.submit(() -> e.getValue().run()).get(120, TimeUnit.SECONDS);
                pass++;
            } catch (Throwable t) {
                Throwable c = t instanceof ExecutionException ? t.getCause() : t;
                ok = "FAIL";
                out = c.toString();
                fail++;
                if (System.getenv("TRACE") != null) c.printStackTrace();
            }
            System.out.printf("%s %-42s %5.1f s  %s%n", ok, e.getKey(), (System.nanoTime() - t0) / 1e9, out);
        }
        System.out.printf("%s: %d passed, %d failed, %.0f s%n", fail == 0 && pass > 0 ? "PASS" : "FAIL", pass, fail, (System.nanoTime() - start) / 1e9);
        System.exit(fail == 0 && pass > 0 ? 0 : 1);
    }
}
