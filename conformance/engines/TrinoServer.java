/** Starts Trino: its own main class is in no jar that can be had by itself. */
public final class TrinoServer {
    public static void main(String[] args) {
        new io.trino.server.Server().start("floe");
    }
}
