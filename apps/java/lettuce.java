// packages: io.lettuce:lettuce-core:6.8.1.RELEASE org.slf4j:slf4j-nop:2.0.17
// Lettuce: RESP3, asynchronous commands, scripts, messages, streams, client-side caching.
import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.pubsub.*;
import io.lettuce.core.support.caching.*;
import java.util.*;
import java.util.concurrent.*;

public class Main {
    public static void main(String[] args) throws Exception {
        RedisClient client = RedisClient.create(System.getenv("REDIS_URL"));
        StatefulRedisConnection<String, String> connection = client.connect();
        RedisCommands<String, String> c = connection.sync();
        System.out.println(c.set("a", "1") + c.get("a") + c.incr("a"));
        Object got = c.eval("return redis.call('get', KEYS[1])", ScriptOutputType.VALUE, new String[] {"a"});
        System.out.println(got);
        c.multi();
        c.incr("n");
        c.lpush("l", "x");
        System.out.println(c.exec().size());
        System.out.println(c.blpop(1, "l") + " " + c.blpop(0.1, "l"));
        c.xgroupCreate(XReadArgs.StreamOffset.from("s", "0"), "g", XGroupCreateArgs.Builder.mkstream());
        c.xadd("s", new XAddArgs().id("1-1"), Map.of("k", "v"));
        System.out.println(c.xreadgroup(Consumer.from("g", "c"), XReadArgs.StreamOffset.lastConsumed("s")));
        System.out.println(c.xpending("s", "g").getCount());
        var messages = new LinkedBlockingQueue<String>();
        StatefulRedisPubSubConnection<String, String> sub = client.connectPubSub();
        sub.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
                messages.add(message);
            }
        });
        sub.sync().subscribe("ch");
        System.out.println(c.publish("ch", "hi") + messages.poll(5, TimeUnit.SECONDS));
        Map<String, String> local = new ConcurrentHashMap<>();
        CacheFrontend<String, String> cache = ClientSideCaching.enable(CacheAccessor.forMap(local), connection, TrackingArgs.Builder.enabled());
        c.set("cached", "1");
        System.out.println(cache.get("cached"));
        client.connect().sync().set("cached", "2");
        for (int i = 0; i < 100 && local.containsKey("cached"); i++) Thread.sleep(20);
        System.out.println(cache.get("cached"));
        client.shutdown();
    }
}
