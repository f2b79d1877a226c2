import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.spark.sql.SparkSession;

/**
 * Sql CATALOG_URI: runs the statements that come on its standard input, a line each, in Spark with Floe's catalog as
 * {@code lake}. It prints a row a line as JSON, and after each statement {@code OK} or {@code ERROR} and the message.
 */
public final class Sql {
    public static void main(String[] args) throws Exception {
        SparkSession spark = session(args[0]);
        System.out.println("OK");
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String statement = input.readLine(); statement != null; statement = input.readLine()) {
            try {
                spark.sql(statement).toJSON().collectAsList().forEach(System.out::println);
                System.out.println("OK");
            } catch (Exception error) {
                System.out.println("ERROR " + error.toString().replaceAll("\\s+", " "));
            }
        }
        spark.stop();
    }

    private static SparkSession session(String catalog) {
        return SparkSession.builder()
            .appName("floe")
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
            .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
            .config("spark.sql.catalog.lake.type", "rest")
            .config("spark.sql.catalog.lake.uri", catalog)
            .config("spark.sql.catalog.lake.cache-enabled", "false")
            .getOrCreate();
    }
}
