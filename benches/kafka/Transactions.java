import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of Kafka's own producer, one after the other, by several producers side by side. Prints a line for
 * each that began after the warm-up: nanoseconds from its start until its records are acknowledged, and until it
 * is committed.
 *
 * <p>Arguments: address, topic, its partitions, producers, records of a transaction, bytes of a record, seconds of
 * warm-up, seconds to measure.
 */
class Transactions {
    private static final long NANOS = 1_000_000_000L;

    private final String address;
    private final String topic;
    private final int partitions;
    private final int records;
    private final byte[] value;
    private final long warmNanos;
    private final long nanos;
    /** All begin together, once each has its id and epoch; from then on nanoseconds count. */
    private final CyclicBarrier start;
    private long started;

    Transactions(String[] arguments) {
        address = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        records = Integer.parseInt(arguments[4]);
        value = new byte[Integer.parseInt(arguments[5])];
        warmNanos = Long.parseLong(arguments[6]) * NANOS;
        nanos = Long.parseLong(arguments[7]) * NANOS;
        start = new CyclicBarrier(Integer.parseInt(arguments[3]), () -> started = System.nanoTime());
    }

    public static void main(String[] arguments) throws Exception {
        Transactions work = new Transactions(arguments);
        int producers = Integer.parseInt(arguments[3]);
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        List<Callable<List<long[]>>> tasks = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            String id = work.topic + "-" + number;
            tasks.add(() -> work.produce(id));
        }
        List<Future<List<long[]>>> ended = threads.invokeAll(tasks);
        threads.shutdown();
        StringBuilder lines = new StringBuilder();
        for (Future<List<long[]>> producer : ended) {
            for (long[] times : producer.get()) {
                lines.append(times[0]).append(' ').append(times[1]).append('\n');
            }
        }
        System.out.print(lines);
    }

    private List<long[]> produce(String id) throws Exception {
        List<long[]> done = new ArrayList<>();
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "transactional.id", id);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            start.await();
            long warm = started + warmNanos;
            long end = warm + nanos;
            for (long began = System.nanoTime(); began < end; began = System.nanoTime()) {
                producer.beginTransaction();
                for (int number = 0; number < records; number++) {
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
                }
                producer.flush();
                long written = System.nanoTime();
                producer.commitTransaction();
                if (began >= warm) {
                    done.add(new long[] {written - began, System.nanoTime() - began});
                }
            }
        }
        return done;
    }
}
