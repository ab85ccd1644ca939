/*
 * A neighbour: so many critical sections under Apache Curator's own lock, in a process of its own.
 *
 *   java -cp /usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar Curator.java \
 *       mutex|write SERVERS PATH FILE COUNT
 *
 * Says "ready" when it is connected. Each turn reads the number in FILE, adds one and writes it back: if two ever
 * work at once, one of their turns is lost, and the sum at the end shows it. Says at last the first and the last
 * number that it wrote.
 *
 * Debian: openjdk-17-jdk-headless (the source launcher needs a compiler), libcurator-recipes-java.
 */

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

public final class Curator {
    private static final int SESSION_MS = 10_000;
    private static final int CONNECT_MS = 10_000;
    private static final int RETRY_PAUSE_MS = 100;
    private static final int WAIT_SECONDS = 30;

    public static void main(String[] args) throws Exception {
        String kind = args[0];
        String servers = args[1];
        String path = args[2];
        Path file = Path.of(args[3]);
        int count = Integer.parseInt(args[4]);
        RetryOneTime retry = new RetryOneTime(RETRY_PAUSE_MS);
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(servers, SESSION_MS, CONNECT_MS, retry)) {
            client.start();
            if (!client.blockUntilConnected(CONNECT_MS, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("no connection to " + servers);
            }
            InterProcessMutex lock = lock(client, path, kind);
            System.out.println("ready");
            System.out.println(takeTurns(lock, file, count));
        }
    }

    private static InterProcessMutex lock(CuratorFramework client, String path, String kind) {
        return switch (kind) {
            case "mutex" -> new InterProcessMutex(client, path);
            case "write" -> new InterProcessReadWriteLock(client, path).writeLock();
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static String takeTurns(InterProcessMutex lock, Path file, int count) throws Exception {
        long first = 0;
        long own = 0;
        for (int turn = 0; turn < count; turn++) {
            if (!lock.acquire(WAIT_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not granted within " + WAIT_SECONDS + " s");
            }
            try {
                own = Long.parseLong(Files.readString(file).trim()) + 1;
                // Room for whoever is wrongly here too.
                Thread.sleep(1);
                Files.writeString(file, Long.toString(own));
                first = turn == 0 ? own : first;
            } finally {
                lock.release();
            }
        }
        return first + " " + own;
    }
}
