// packages: github.com/gocraft/work@latest github.com/gomodule/redigo@v1.9.2
// gocraft/work: jobs, retries, scheduled and unique jobs, by redigo.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

type ctx struct{}

func main() {
	pool := &redis.Pool{MaxActive: 5, MaxIdle: 5, Wait: true, Dial: func() (redis.Conn, error) { return redis.DialURL(os.Getenv("REDIS_URL")) }}
	e := work.NewEnqueuer("ns", pool)
	var done, tries atomic.Int64
	p := work.NewWorkerPool(ctx{}, 2, "ns", pool)
	p.Job("add", func(*work.Job) error { done.Add(1); return nil })
	p.JobWithOptions("shaky", work.JobOptions{MaxFails: 3, Backoff: func(*work.Job) int64 { return 0 }}, func(*work.Job) error {
		if tries.Add(1) == 1 {
			return errors.New("again")
		}
		done.Add(1)
		return nil
	})
	for i := 0; i < 10; i++ {
		e.Enqueue("add", work.Q{"n": i})
	}
	e.EnqueueIn("add", 1, work.Q{})
	one, _ := e.EnqueueUnique("add", work.Q{"u": 1})
	two, _ := e.EnqueueUnique("add", work.Q{"u": 1})
	e.Enqueue("shaky", work.Q{})
	p.Start()
	for i := 0; i < 600 && done.Load() < 13; i++ {
		time.Sleep(25 * time.Millisecond)
	}
	p.Drain()
	p.Stop()
	fmt.Println(done.Load(), tries.Load(), one != nil, two == nil)
}
