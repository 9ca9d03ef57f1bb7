// packages: github.com/go-redis/redis_rate/v10@latest github.com/redis/go-redis/v9@latest
// redis_rate: a leaky bucket by script.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func main() {
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	l := redis_rate.NewLimiter(redis.NewClient(opt))
	for i := 0; i < 7; i++ {
		r, err := l.Allow(context.Background(), "u", redis_rate.PerHour(5))
		fmt.Println(r.Allowed, r.Remaining, err)
	}
	r, err := l.AllowN(context.Background(), "v", redis_rate.PerHour(5), 3)
	fmt.Println(r.Allowed, r.Remaining, err, l.Reset(context.Background(), "u"))
}
