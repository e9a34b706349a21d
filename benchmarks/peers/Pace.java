import org.apache.flink.table.functions.ScalarFunction;

/**
 * Holds rows back until their time has come, like an outside stream that waits for nobody: after a failure, rows that are
 * overdue pass at once. `k` is the row's millisecond of event time, `start` the wall clock at event time 0.
 */
public class Pace extends ScalarFunction {
    private static final long TICK = 20;

    public long eval(long k, long start) throws InterruptedException {
        long wait = start + (k / TICK + 1) * TICK - System.currentTimeMillis();
        if (wait > 0) {
            Thread.sleep(wait);
        }
        return k;
    }
}
