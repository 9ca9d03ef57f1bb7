// packages: github.com/ulule/limiter/v3@latest github.com/redis/go-redis/v9@latest
// ulule/limiter: counters by script.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
)

func main() {
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	s, err := store.NewStore(redis.NewClient(opt))
	fmt.Println(err)
	rate, _ := limiter.NewRateFromFormatted("3-H")
	l := limiter.New(s, rate)
	for i := 0; i < 5; i++ {
		c, err := l.Get(context.Background(), "u")
		fmt.Println(c.Remaining, c.Reached, err)
	}
}
