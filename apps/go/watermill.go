// packages: github.com/ThreeDotsLabs/watermill-redisstream@latest github.com/ThreeDotsLabs/watermill@latest github.com/redis/go-redis/v9@latest
// Watermill: a publisher and a group of subscribers over a stream.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

func main() {
	opt, _ := redis.ParseURL(os.Getenv("REDIS_URL"))
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: redis.NewClient(opt), ConsumerGroup: "g", OldestId: "0"}, watermill.NopLogger{})
	fmt.Println(err)
	messages, err := sub.Subscribe(context.Background(), "t")
	fmt.Println(err)
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: redis.NewClient(opt)}, watermill.NopLogger{})
	fmt.Println(err)
	for i := 0; i < 10; i++ {
		pub.Publish("t", message.NewMessage(fmt.Sprint("u", i), []byte(fmt.Sprint(i))))
	}
	var got []string
	for len(got) < 10 {
		select {
		case m := <-messages:
			got = append(got, string(m.Payload))
			m.Ack()
		case <-time.After(5 * time.Second):
			got = append(got, "late")
		}
	}
	sort.Strings(got)
	fmt.Println(got, sub.Close(), pub.Close())
}
