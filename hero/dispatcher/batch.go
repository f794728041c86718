package dispatcher

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxCreations bounds one batch of new jobs.
const maxCreations = 128

// creation is a new job, under an id that nobody else can have, that waits to be
// written and pushed.
type creation struct {
	queue, id string
	fields    []any
	err       error
	turn      chan bool // true: it is written; false: it leads the next batch
}

// batcher writes the jobs that many goroutines create at once in one go: the first
// to come writes what came while the batch before it was on its way. Who comes
// alone does not wait.
type batcher struct {
	db *redis.Client

	mu      sync.Mutex // guards what follows
	busy    bool
	waiting []*creation
}

// create writes a job and pushes it, as the document does: HSET, LPUSH.
func (b *batcher) create(ctx context.Context, c *creation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	leads := !b.busy
	b.busy = true
	b.mu.Unlock()
	if !leads && <-c.turn {
		return c.err
	}
	b.lead(ctx)
	return c.err
}

// lead writes a batch, of which the leader's own is the first, and hands over.
// The others' jobs do not end with the leader's context.
func (b *batcher) lead(ctx context.Context) {
	b.mu.Lock()
	n := min(len(b.waiting), maxCreations)
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.mu.Unlock()
	b.write(context.WithoutCancel(ctx), batch)
	b.mu.Lock()
	b.busy = len(b.waiting) > 0
	if b.busy {
		b.waiting[0].turn <- false
	}
	b.mu.Unlock()
	for _, c := range batch[1:] {
		c.turn <- true
	}
}

func (b *batcher) write(ctx context.Context, batch []*creation) {
	pipe := b.db.Pipeline()
	cmds := make([]redis.Cmder, 0, 2*len(batch))
	for _, c := range batch {
		cmds = append(cmds, pipe.HSet(ctx, JobKey(c.id), c.fields...), pipe.LPush(ctx, c.queue, c.id))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, c := range batch {
		if c.err = cmds[2*i].Err(); c.err == nil {
			c.err = cmds[2*i+1].Err()
		}
	}
}
