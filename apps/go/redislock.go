// packages: github.com/bsm/redislock@latest github.com/redis/go-redis/v9@latest
// redislock: a lock with a time to live.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	c := redislock.New(redis.NewClient(opt))
	l, err := c.Obtain(ctx, "k", time.Second, &redislock.Options{Metadata: "m"})
	fmt.Println(err, l.Metadata())
	_, err = c.Obtain(ctx, "k", time.Second, nil)
	fmt.Println(err)
	fmt.Println(l.Refresh(ctx, 5*time.Second, nil))
	ttl, err := l.TTL(ctx)
	fmt.Println(ttl > 2*time.Second, err, l.Release(ctx), l.Release(ctx))
}
