// packages: github.com/go-redsync/redsync/v4@latest github.com/redis/go-redis/v9@latest
// Redsync: a lock, its extension, its refusal.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	rs := redsync.New(goredis.NewPool(redis.NewClient(opt)))
	m := rs.NewMutex("m", redsync.WithExpiry(2*time.Second))
	fmt.Println(m.Lock())
	other := rs.NewMutex("m", redsync.WithTries(1))
	fmt.Println(other.Lock() != nil)
	fmt.Println(m.Extend())
	fmt.Println(m.Unlock())
	fmt.Println(other.Lock())
	fmt.Println(other.Valid())
}
