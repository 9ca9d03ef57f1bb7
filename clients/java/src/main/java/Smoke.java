import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Smoke program of Jedis: `Smoke PORT`. */
public class Smoke {
  static void same(Object got, Object wanted) {
    if (!Objects.equals(got, wanted)) {
      throw new AssertionError("got " + got + ", not " + wanted);
    }
  }

  static List<String> texts(Object reply) {
    List<String> all = new ArrayList<>();
    if (reply instanceof List<?> items) {
      items.forEach(item -> all.addAll(texts(item)));
    } else if (reply instanceof byte[] bytes) {
      all.add(new String(bytes, StandardCharsets.UTF_8));
    }
    return all;
  }

  public static void main(String[] args) throws Exception {
    try (Jedis client = new Jedis("127.0.0.1", Integer.parseInt(args[0]))) {
      client.flushAll();
      same(client.set("greeting", "hello"), "OK");
      same(client.get("greeting"), "hello");
      same(client.incrBy("counter", 5), 5L);

      same(client.hset("hash", Map.of("a", "1", "b", "2")), 2L);
      same(client.hgetAll("hash"), Map.of("a", "1", "b", "2"));
      same(client.zadd("board", Map.of("ada", 3.0, "bob", 1.5)), 2L);
      same(client.zrange("board", 0, -1), List.of("bob", "ada"));
      same(client.zscore("board", "bob"), 1.5);
      same(client.zrank("board", "ada"), 1L);
      same(client.rpush("list", "x", "y", "z"), 3L);
      same(client.lrange("list", 0, -1), List.of("x", "y", "z"));
      same(client.sadd("set", "p", "q"), 2L);
      same(client.smembers("set"), Set.of("p", "q"));

      var transaction = client.multi();
      transaction.set("t", "1");
      transaction.incr("t");
      Response<String> last = transaction.get("t");
      transaction.exec();
      same(last.get(), "2");

      var pipeline = client.pipelined();
      for (int number = 0; number < 100; number++) {
        pipeline.set(String.format("page:%03d", number), Integer.toString(number));
      }
      pipeline.sync();
      Set<String> found = new HashSet<>();
      String cursor = ScanParams.SCAN_POINTER_START;
      do {
        ScanResult<String> page = client.scan(cursor, new ScanParams().match("page:*").count(7));
        found.addAll(page.getResult());
        cursor = page.getCursor();
      } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
      same(found.size(), 100);

      same(client.set("short", "life", SetParams.setParams().px(30)), "OK");
      Thread.sleep(50);
      same(client.get("short"), null);

      Object pages = client.sendCommand(() -> "RANGE".getBytes(), "[page:010", "(page:012");
      same(texts(pages), List.of("page:010", "10", "page:011", "11"));
      same(texts(client.sendCommand(() -> "NEXT".getBytes(), "page:010")).get(0), "page:011");
      same(texts(client.sendCommand(() -> "PREV".getBytes(), "page:010")).get(0), "page:009");
      try {
        client.lpush("greeting", "no list");
        throw new AssertionError("a list was made of a string");
      } catch (JedisDataException error) {
        same(error.getMessage().startsWith("WRONGTYPE"), true);
      }
    }
    System.out.println("jedis: ok");
  }
}
