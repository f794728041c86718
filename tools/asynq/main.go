// Command asynq measures Edda's job queues beside asynq's: one queue, jobs that do
// nothing, the same redis-server, in one run. The systems take turns, so that what
// else the machine does meets all of them. It prints jobs per second and the ratio
// of ours to asynq's, and fails where we are slower.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"edda/internal/realservers"
)

// system is one queue under measurement.
type system interface {
	name() string
	// enqueue adds one job; it is called by many goroutines.
	enqueue(ctx context.Context) error
	// process runs jobs, concurrency at once, and calls done for each, until ctx ends.
	process(ctx context.Context, concurrency int, done func()) error
}

// settings of a run.
type settings struct {
	jobs, rounds, producers, concurrency int
	addr                                 string
}

func main() {
	var s settings
	flag.IntVar(&s.jobs, "jobs", 30_000, "jobs of one round")
	flag.IntVar(&s.rounds, "rounds", 5, "rounds; the median counts")
	flag.IntVar(&s.producers, "producers", 64, "goroutines that add jobs")
	flag.IntVar(&s.concurrency, "concurrency", 64, "jobs that run at once")
	flag.Parse()
	log.SetFlags(0)
	debug.SetGCPercent(50) // as edda has it; what garbage costs is then much the same for every system
	ballast := make([]byte, 64<<20)
	defer runtime.KeepAlive(ballast)
	if err := measure(s); err != nil {
		log.Fatal(err)
	}
}

func measure(s settings) error {
	server, err := realservers.Redis(realservers.RedisOptions{})
	if err != nil {
		return err
	}
	defer server.Stop()
	s.addr = server.Address()
	systems := []system{newAsynq(s.addr), newDispatcher(s.addr), newRunner(s.addr)}
	results := map[string]*result{}
	for _, sys := range systems {
		results[sys.name()] = &result{}
	}
	for round := range s.rounds {
		for i := range systems {
			sys := systems[(i+round)%len(systems)] // nobody is always the first
			if err := measureOne(s, sys, results[sys.name()]); err != nil {
				return fmt.Errorf("%s: %w", sys.name(), err)
			}
		}
	}
	return report(os.Stdout, s, systems, results)
}

// result holds, for each round, jobs per second and Redis's work for a job.
type result struct {
	add, run       []float64
	commands, busy []float64 // per job: Redis's commands, scripts' own ones too; its microseconds of the processor
}

// measureOne fills the queue, and then empties it.
func measureOne(s settings, sys system, r *result) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	db := redis.NewClient(&redis.Options{Addr: s.addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	defer db.Close()
	if err := db.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := db.ConfigResetStat(ctx).Err(); err != nil {
		return err
	}
	_, idle, err := work(ctx, db)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := fill(ctx, s, sys); err != nil {
		return err
	}
	add := time.Since(began)
	run, err := empty(ctx, s, sys)
	if err != nil {
		return err
	}
	commands, busy, err := work(ctx, db)
	n := float64(s.jobs)
	r.add, r.run = append(r.add, n/add.Seconds()), append(r.run, n/run.Seconds())
	r.commands, r.busy = append(r.commands, commands/n), append(r.busy, (busy-idle)/n)
	return err
}

func fill(ctx context.Context, s settings, sys system) error {
	var left atomic.Int64
	left.Store(int64(s.jobs))
	var wg sync.WaitGroup
	errs := make(chan error, s.producers)
	for range s.producers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := sys.enqueue(ctx); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// empty runs until the last job was done: how long a system takes to start
// counts, how long it takes to stop does not.
func empty(ctx context.Context, s settings, sys system) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var done atomic.Int64
	all, ended := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	go func() {
		ended <- sys.process(ctx, s.concurrency, func() {
			if done.Add(1) == int64(s.jobs) {
				close(all)
			}
		})
	}()
	select {
	case <-all:
	case err := <-ended:
		return 0, fmt.Errorf("ended after %d jobs: %w", done.Load(), err)
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d jobs were run", done.Load(), s.jobs)
	}
	took := time.Since(began)
	cancel()
	return took, <-ended
}

// work reads what Redis has done: commands, scripts' own ones too, since its
// counters were reset, and microseconds of the processor since it was started.
func work(ctx context.Context, db *redis.Client) (calls, micros float64, err error) {
	info, err := db.InfoMap(ctx, "commandstats", "cpu").Result()
	if err != nil {
		return 0, 0, err
	}
	for _, line := range info["Commandstats"] {
		var n float64
		if _, err := fmt.Sscanf(line, "calls=%f", &n); err == nil {
			calls += n
		}
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("INFO cpu: %w", err)
		}
		micros += 1e6 * seconds
	}
	return calls, micros, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
