import java.util.Arrays;
import java.util.HashMap;

/** Keeps arrays in a hash map, drops every fifth, and reads the rest three times. */
public class Table {
    public static void main(String[] arguments) {
        final int count = 120_000;
        HashMap<Integer, byte[]> table = new HashMap<>();
        for (int i = 0; i < count; i++) {
            byte[] bytes = new byte[1000];
            Arrays.fill(bytes, (byte) (i * 31));
            bytes[i % 1000] = (byte) i;
            table.put(i, bytes);
        }
        for (int i = 0; i < count; i += 5) table.remove(i);
        long digest = 0;
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < count; i++) {
                byte[] bytes = table.get((int) ((i * 7919L) % count));
                digest = digest * 31 + (bytes == null ? 1 : bytes[(i + round) % 1000]);
            }
        }
        System.out.println(digest + " " + table.size());
    }
}
