import java.util.List;
import java.util.Map;

/**
 * A topic that is written and compacted on two brokers.
 *
 * <p>seed: of what is random; keys: how many there are; codec: of its producers; transactions: whether some of them are
 * transactional; hasKeyless: the first round has records without a key, and the topic is compacted only after it;
 * startsLater: records before the middle of the first round are deleted once it was compacted; configs: the topic's own.
 */
record Case(
        String name, int seed, int keys, String codec, boolean transactions, boolean hasKeyless, boolean startsLater,
        Map<String, String> configs) {
    /** All of them. */
    static final List<Case> ALL = List.of(
        new Case("codec-none", 1, 9, "none", true, false, false, Map.of()),
        new Case("codec-gzip", 2, 9, "gzip", true, false, false, Map.of()),
        new Case("codec-snappy", 3, 9, "snappy", true, false, false, Map.of()),
        new Case("codec-lz4", 4, 9, "lz4", true, false, false, Map.of()),
        new Case("codec-zstd", 5, 9, "zstd", true, false, false, Map.of()),
        new Case("many-keys", 6, 400, "none", true, false, false, Map.of()),
        new Case("no-transactions", 7, 9, "none", false, false, false, Map.of()),
        new Case("tombstones-go", 8, 9, "lz4", false, false, false, Map.of("delete.retention.ms", "500")),
        new Case("log-append-time", 9, 9, "zstd", true, false, false, appendTime()),
        new Case("keyless-before", 10, 9, "none", true, true, false, Map.of()),
        new Case("deleted-records", 11, 9, "none", false, false, true, both()));

    boolean isAppendTime() {
        return configs.containsKey("message.timestamp.type");
    }

    /** The policy while the first round is written. */
    String firstPolicy() {
        return hasKeyless ? "delete" : policy();
    }

    String policy() {
        return configs.getOrDefault("cleanup.policy", "compact");
    }

    private static Map<String, String> both() {
        return Map.of("cleanup.policy", "compact,delete", "retention.ms", "-1");
    }

    private static Map<String, String> appendTime() {
        return Map.of("message.timestamp.type", "LogAppendTime", "segment.ms", "1000");
    }
}
