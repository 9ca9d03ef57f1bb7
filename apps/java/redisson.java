// packages: org.redisson:redisson:3.50.0 org.slf4j:slf4j-nop:2.0.17
// Redisson: a map with expiring entries, locks, a semaphore, queues, a topic, a rate limiter.
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.config.Config;

public class Main {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv("REDIS_URL").replaceAll("/0$", ""));
        RedissonClient r = Redisson.create(config);
        RMap<String, Integer> map = r.getMap("m", new org.redisson.codec.CompositeCodec(
            org.redisson.client.codec.StringCodec.INSTANCE, org.redisson.client.codec.IntegerCodec.INSTANCE));
        map.put("a", 1);
        System.out.println(map.addAndGet("a", 2) + " " + map.putIfAbsent("a", 9) + " " + map.readAllMap());
        RMapCache<String, String> cache = r.getMapCache("mc");
        cache.put("k", "v", 60, TimeUnit.SECONDS);
        System.out.println(cache.get("k") + " " + (cache.remainTimeToLive("k") > 1000));
        RLock lock = r.getLock("l");
        lock.lock(5, TimeUnit.SECONDS);
        System.out.println(lock.isHeldByCurrentThread() + " " + lock.getHoldCount());
        Thread t = new Thread(() -> {
            try {
                System.out.println(r.getLock("l").tryLock(2, 5, TimeUnit.SECONDS));
            } catch (InterruptedException e) {
                System.out.println(e);
            }
        });
        t.start();
        Thread.sleep(200);
        lock.unlock();
        t.join();
        RSemaphore semaphore = r.getSemaphore("s");
        System.out.println(semaphore.trySetPermits(2) + " " + semaphore.tryAcquire(2) + " " + semaphore.tryAcquire());
        RBlockingQueue<String> queue = r.getBlockingQueue("q");
        queue.offer("x");
        System.out.println(queue.poll(1, TimeUnit.SECONDS) + " " + queue.poll(200, TimeUnit.MILLISECONDS));
        RDelayedQueue<String> delayed = r.getDelayedQueue(queue);
        delayed.offer("late", 200, TimeUnit.MILLISECONDS);
        System.out.println(queue.poll(5, TimeUnit.SECONDS));
        delayed.destroy();
        var latch = new java.util.concurrent.CountDownLatch(1);
        RTopic topic = r.getTopic("t");
        topic.addListener(String.class, (c, m) -> { System.out.println(m); latch.countDown(); });
        long receivers = topic.publish("hi");
        latch.await(5, TimeUnit.SECONDS);
        System.out.println(receivers);
        RRateLimiter limiter = r.getRateLimiter("r");
        limiter.trySetRate(RateType.OVERALL, 2, 100, RateIntervalUnit.SECONDS);
        System.out.println(limiter.tryAcquire() + " " + limiter.tryAcquire() + " " + limiter.tryAcquire());
        RScoredSortedSet<String> set = r.getScoredSortedSet("z");
        set.add(1, "a");
        set.add(2, "b");
        System.out.println(set.rank("b") + " " + set.entryRange(0, -1).size());
        RAtomicLong n = r.getAtomicLong("n");
        System.out.println(n.incrementAndGet() + " " + n.compareAndSet(1, 5) + " " + n.get());
        r.shutdown();
    }
}
