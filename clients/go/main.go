// Smoke program of go-redis: `go run . PORT`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func same(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		log.Fatalf("got %#v, not %#v", got, wanted)
	}
}

func flat(items []any) (all []any) {
	for _, item := range items {
		if pair, ok := item.([]any); ok {
			all = append(all, pair...)
		} else {
			all = append(all, item)
		}
	}
	return all
}

func main() {
	ctx := context.Background()
	// The long pipeline alone may take longer than the ordinary time limits of 3 seconds.
	options := redis.Options{Addr: "127.0.0.1:" + os.Args[1]}
	options.ReadTimeout, options.WriteTimeout = time.Minute, time.Minute
	client := redis.NewClient(&options)
	must(client.FlushAll(ctx).Err())

	same(client.Set(ctx, "greeting", "hello", 0).Val(), "OK")
	same(client.Get(ctx, "greeting").Val(), "hello")
	same(client.IncrBy(ctx, "counter", 5).Val(), int64(5))
	same(client.MGet(ctx, "greeting", "absent").Val(), []any{"hello", nil})

	same(client.HSet(ctx, "hash", "a", 1, "b", 2).Val(), int64(2))
	same(client.HGetAll(ctx, "hash").Val(), map[string]string{"a": "1", "b": "2"})

	members := []redis.Z{{Score: 3, Member: "ada"}, {Score: 1.5, Member: "bob"}}
	same(client.ZAdd(ctx, "board", members...).Val(), int64(2))
	same(client.ZRangeWithScores(ctx, "board", 0, -1).Val(), []redis.Z{members[1], members[0]})
	same(client.ZScore(ctx, "board", "bob").Val(), 1.5)
	same(client.ZRank(ctx, "board", "ada").Val(), int64(1))

	same(client.RPush(ctx, "list", "x", "y", "z").Val(), int64(3))
	same(client.LRange(ctx, "list", 0, -1).Val(), []string{"x", "y", "z"})
	same(client.LPop(ctx, "list").Val(), "x")

	same(client.SAdd(ctx, "set", "p", "q").Val(), int64(2))
	same(client.SMembersMap(ctx, "set").Val(), map[string]struct{}{"p": {}, "q": {}})

	var last *redis.StringCmd
	_, err := client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, "t", 1, 0)
		tx.Incr(ctx, "t")
		last = tx.Get(ctx, "t")
		return nil
	})
	must(err)
	same(last.Val(), "2")

	_, err = client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for number := range [100]struct{}{} {
			pipeline.Set(ctx, fmt.Sprintf("page:%03d", number), number, 0)
		}
		return nil
	})
	must(err)
	found := map[string]bool{}
	scan := client.Scan(ctx, 0, "page:*", 7).Iterator()
	for scan.Next(ctx) {
		found[scan.Val()] = true
	}
	must(scan.Err())
	same(len(found), 100)

	// go-redis writes a whole pipeline before it reads the first reply. CONTRIBUTING.md names the
	// long form, RHUMB_PIPELINE=1000000.
	commands := 10_000
	if text, given := os.LookupEnv("RHUMB_PIPELINE"); given {
		commands, err = strconv.Atoi(text)
		must(err)
	}
	replies, err := client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for number := 0; number < commands/2; number++ {
			pipeline.Incr(ctx, "pipeline")
			pipeline.Echo(ctx, fmt.Sprintf("%0200d", number))
		}
		return nil
	})
	must(err)
	for number := 0; number < commands/2; number++ {
		same(replies[2*number].(*redis.IntCmd).Val(), int64(number+1))
		same(replies[2*number+1].(*redis.StringCmd).Val(), fmt.Sprintf("%0200d", number))
	}

	same(client.Set(ctx, "short", "life", 30*time.Millisecond).Val(), "OK")
	time.Sleep(50 * time.Millisecond)
	same(client.Get(ctx, "short").Err(), redis.Nil)

	pages, err := client.Do(ctx, "RANGE", "[page:010", "(page:012").Slice()
	must(err)
	same(flat(pages), []any{"page:010", "10", "page:011", "11"})
	next, err := client.Do(ctx, "NEXT", "page:010").Slice()
	must(err)
	same(next[0], "page:011")
	prev, err := client.Do(ctx, "PREV", "page:010").Slice()
	must(err)
	same(prev[0], "page:009")

	refused := client.LPush(ctx, "greeting", "no list").Err()
	same(refused != nil && strings.HasPrefix(refused.Error(), "WRONGTYPE"), true)
	must(client.Close())
	fmt.Println("go-redis", redis.Version()+":", "ok")
}
