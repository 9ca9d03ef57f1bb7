// packages: github.com/redis/go-redis/v9@latest
// go-redis: transactions with WATCH, scripts, messages, streams, blocking pops.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	c := redis.NewClient(opt)
	fmt.Println(c.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Incr(ctx, "n"); return nil })
		return err
	}, "n"))
	s := redis.NewScript("return {KEYS[1], ARGV[1], redis.call('get', KEYS[1])}")
	fmt.Println(s.Run(ctx, c, []string{"n"}, 1).Result())
	sub := c.Subscribe(ctx, "ch")
	sub.Receive(ctx)
	c.Publish(ctx, "ch", "hi")
	m, err := sub.ReceiveMessage(ctx)
	fmt.Println(m, err)
	go func() { time.Sleep(100 * time.Millisecond); c.LPush(ctx, "q", "x") }()
	fmt.Println(c.BRPop(ctx, 5*time.Second, "q").Result())
	fmt.Println(c.BLMove(ctx, "none", "q", "LEFT", "RIGHT", 100*time.Millisecond).Result())
	fmt.Println(c.XGroupCreateMkStream(ctx, "s", "g", "0").Result())
	c.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "1-1", Values: []string{"a", "b"}})
	fmt.Println(c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}}).Result())
	fmt.Println(c.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "d", Start: "0"}).Result())
	fmt.Println(c.GeoAdd(ctx, "g", &redis.GeoLocation{Name: "p", Longitude: 13.361389, Latitude: 38.115556}).Result())
	fmt.Println(c.GeoSearch(ctx, "g", &redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km"}).Result())
	fmt.Println(c.SetBit(ctx, "b", 7, 1).Result())
	fmt.Println(c.PFAdd(ctx, "h", "a", "b").Result())
	fmt.Println(c.PFCount(ctx, "h").Result())
}
