// packages: org.springframework.data:spring-data-redis:3.5.4 io.lettuce:lettuce-core:6.8.1.RELEASE org.slf4j:slf4j-nop:2.0.17
// Spring Data Redis: templates, blocking pops, streams with listeners, messages, scripts.
import java.net.URI;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.connection.stream.*;
import org.springframework.data.redis.core.*;
import org.springframework.data.redis.core.script.DefaultRedisScript;
import org.springframework.data.redis.listener.*;
import org.springframework.data.redis.stream.StreamMessageListenerContainer;

public class Main {
    public static void main(String[] args) throws Exception {
        URI uri = URI.create(System.getenv("REDIS_URL"));
        LettuceConnectionFactory factory = new LettuceConnectionFactory(uri.getHost(), uri.getPort());
        factory.afterPropertiesSet();
        factory.start();
        StringRedisTemplate t = new StringRedisTemplate(factory);
        t.opsForValue().set("a", "1", Duration.ofSeconds(60));
        System.out.println(t.opsForValue().increment("a") + " " + (t.getExpire("a") > 10));
        t.opsForHash().putAll("h", Map.of("x", "1"));
        System.out.println(t.opsForHash().entries("h") + " " + t.opsForZSet().add("z", "m", 2) + t.opsForZSet().rank("z", "m"));
        t.opsForList().rightPushAll("l", "1", "2");
        System.out.println(t.opsForList().leftPop("l", 1, TimeUnit.SECONDS) + t.opsForList().rightPopAndLeftPush("l", "l2", Duration.ofSeconds(1)));
        System.out.println(t.execute(new DefaultRedisScript<>("return redis.call('incrby', KEYS[1], ARGV[1])", Long.class), List.of("a"), "5"));
        t.opsForStream().createGroup("s", ReadOffset.from("0"), "g");
        var got = new LinkedBlockingQueue<String>();
        var container = StreamMessageListenerContainer.create(factory, StreamMessageListenerContainer.StreamMessageListenerContainerOptions.builder().pollTimeout(Duration.ofMillis(200)).build());
        container.receiveAutoAck(Consumer.from("g", "c"), StreamOffset.create("s", ReadOffset.lastConsumed()), m -> got.add(m.getValue().toString()));
        container.start();
        t.opsForStream().add("s", Map.of("k", "v"));
        System.out.println(got.poll(5, TimeUnit.SECONDS));
        container.stop();
        RedisMessageListenerContainer listeners = new RedisMessageListenerContainer();
        listeners.setConnectionFactory(factory);
        listeners.addMessageListener((m, p) -> got.add(new String(m.getBody())), new ChannelTopic("ch"));
        listeners.afterPropertiesSet();
        listeners.start();
        Thread.sleep(500);
        t.convertAndSend("ch", "hi");
        System.out.println(got.poll(5, TimeUnit.SECONDS));
        listeners.stop();
        System.exit(0);
    }
}
