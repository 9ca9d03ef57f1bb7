// packages: github.com/adjust/rmq/v5@latest
// rmq: deliveries that are acknowledged, rejected and returned.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/adjust/rmq/v5"
	"github.com/redis/go-redis/v9"
)

func main() {
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	c, err := rmq.OpenConnectionWithRedisClient("tag", redis.NewClient(opt), nil)
	fmt.Println(err)
	q, err := c.OpenQueue("q")
	fmt.Println(err)
	for i := 0; i < 20; i++ {
		q.Publish(fmt.Sprint(i))
	}
	var acked, rejected atomic.Int64
	q.StartConsuming(10, 10*time.Millisecond)
	q.AddConsumerFunc("c", func(d rmq.Delivery) {
		if d.Payload() == "7" {
			rejected.Add(1)
			d.Reject()
			return
		}
		acked.Add(1)
		d.Ack()
	})
	for i := 0; i < 200 && acked.Load()+rejected.Load() < 20; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	<-q.StopConsuming()
	n, err := q.ReturnRejected(10)
	fmt.Println(acked.Load(), rejected.Load(), n, err)
	stats, err := c.CollectStats([]string{"q"})
	fmt.Println(stats.QueueStats["q"].ReadyCount, stats.QueueStats["q"].RejectedCount, err)
}
