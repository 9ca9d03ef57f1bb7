// packages: github.com/hibiken/asynq@latest
// Asynq: tasks, retries, unique and delayed tasks, the inspector.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	opt, _ := asynq.ParseRedisURI(os.Getenv("REDIS_URL"))
	client := asynq.NewClient(opt)
	var done, tries atomic.Int64
	mux := asynq.NewServeMux()
	mux.HandleFunc("add", func(_ context.Context, t *asynq.Task) error { done.Add(1); return nil })
	mux.HandleFunc("shaky", func(_ context.Context, t *asynq.Task) error {
		if tries.Add(1) == 1 {
			return fmt.Errorf("again")
		}
		done.Add(1)
		return nil
	})
	server := asynq.NewServer(opt, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond }})
	for i := 0; i < 10; i++ {
		if _, err := client.Enqueue(asynq.NewTask("add", nil)); err != nil {
			fmt.Println(err)
		}
	}
	client.Enqueue(asynq.NewTask("add", nil), asynq.ProcessIn(200*time.Millisecond))
	client.Enqueue(asynq.NewTask("shaky", nil))
	_, err := client.Enqueue(asynq.NewTask("add", []byte("u")), asynq.Unique(time.Minute))
	_, twice := client.Enqueue(asynq.NewTask("add", []byte("u")), asynq.Unique(time.Minute))
	fmt.Println(err, twice)
	server.Start(mux)
	for i := 0; i < 400 && done.Load() < 13; i++ {
		time.Sleep(25 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	info, err := asynq.NewInspector(opt).GetQueueInfo("default")
	fmt.Println(done.Load(), tries.Load(), info.Processed, info.Failed, info.Pending, err)
	server.Shutdown()
}
