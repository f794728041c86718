package dispatcher

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda"
	"edda/hero"
)

// round records the results of ended jobs and begins as many jobs as there is room for, in
// one script. After an error the next round sends the same results again; recording a
// result twice changes nothing.
func (w *Worker) round(ctx, jobs context.Context) error {
	recording, beginning := len(w.done), w.pending
	room := 0
	if ctx.Err() == nil && w.hungry {
		room = w.room()
	}
	if !w.begins() {
		beginning = nil
	}
	// The worker records results while it stops, too.
	answer, err := w.exchange(context.WithoutCancel(ctx), recording, room, beginning)
	if err != nil {
		return trouble("take and record jobs of "+w.id, err)
	}
	w.recorded(texts(answer[0]))
	if beginning != nil {
		w.pending, w.blocked = nil, false
	}
	begun, _ := answer[1].([]any)
	for _, b := range begun {
		if err := w.begin(ctx, jobs, b.([]any)); err != nil {
			return err
		}
	}
	blocked, _ := answer[2].(int64)
	taking, _ := answer[3].(int64)
	if room > 0 {
		w.blocked = blocked != 0 || w.blocked
		w.hungry = int(taking) == room || w.blocked
	}
	return nil
}

func (w *Worker) exchange(ctx context.Context, recording, room int, beginning []string) ([]any, error) {
	args := make([]any, 0, 6+7*recording+len(beginning))
	args = append(args, w.id, w.run, room, len(w.running), int64(w.o.Keep/time.Second), recording)
	for _, r := range w.done[:recording] {
		args = append(args, r.id, r.attempt, r.how, bit(r.retry), r.text, bit(r.how == string(hero.JobFinished) || r.output != ""), r.output)
	}
	answer, err := w.conn.run(ctx, w.scripts.round, with(beginning, args...)...).Slice()
	if err == nil && len(answer) != 4 {
		err = errors.New("the script answers in another form")
	}
	return answer, err
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// recorded counts and logs the fate of each result.
func (w *Worker) recorded(fates []string) {
	for i, fate := range fates {
		r := w.done[i]
		w.metrics.seconds.WithLabelValues(w.id).Observe(r.took.Seconds())
		switch fate {
		case "ended":
			w.metrics.completed.WithLabelValues(w.id, r.how, class(hero.JobStatus(r.how), r.text)).Inc()
		case "retried":
			w.metrics.retried.Inc()
			w.hungry = true
			w.o.Log.Info("a run failed; the job is queued again", zap.String("job", r.id), zap.String("attempt", r.attempt), zap.String("error", r.text))
		case "released":
			w.o.Log.Info("a job was put back", zap.String("job", r.id))
		default:
			w.metrics.dropped.Inc()
			w.o.Log.Warn("a result came too late and was dropped: the job was deleted, or another worker has it", zap.String("job", r.id))
		}
	}
	w.done = append(w.done[:0], w.done[len(fates):]...)
	w.metrics.running.WithLabelValues(w.id).Set(float64(len(w.running)))
}

// begin acts on the script's answer about one job that was taken.
func (w *Worker) begin(ctx, jobs context.Context, b []any) error {
	word, _ := b[0].(string)
	id, _ := b[1].(string)
	switch word {
	case "run":
		attempt, _ := b[3].(string)
		w.start(jobs, id, flat(b[2]), attempt)
	case "gate":
		return w.gate(ctx, id, flat(b[2]))
	case "held":
		w.pending, w.blocked = append(w.pending, "gate", id), true
	case "stopped":
		w.metrics.completed.WithLabelValues(w.id, string(hero.JobError), ErrorStopped).Inc()
	case "gone":
		w.o.Log.Error("a job in the queue has no hash; nothing can be run", zap.String("worker", w.id), zap.String("job", bounded(id)))
	case "done":
		w.o.Log.Debug("a job in the queue has run, or runs, already", zap.String("job", bounded(id)))
	}
	return nil
}

// start runs a job that is recorded as started.
func (w *Worker) start(jobs context.Context, id string, hash map[string]string, attempt string) {
	j, err := readJob(id, hash)
	if err != nil || j.Script == "" {
		if err == nil {
			err = errors.New("the job has no script")
		}
		w.done = append(w.done, result{id: id, attempt: attempt, how: string(hero.JobError), text: "invalid: " + err.Error()})
		return
	}
	ctx, cancel := context.WithCancelCause(jobs)
	w.running[id] = &runningJob{cancel, !j.Concurrent}
	w.jobs.Go(func() {
		defer cancel(nil)
		w.results <- w.execute(ctx, j, attempt)
	})
}

// gate decides whether a job with dependencies may begin. Until they have ended, the job
// waits.
func (w *Worker) gate(ctx context.Context, id string, hash map[string]string) error {
	j, err := readJob(id, hash)
	never := ""
	if err == nil {
		err = w.acyclic(ctx, id, j.Waits())
	}
	switch {
	case errors.Is(err, edda.Temporary):
		w.pending = append(w.pending, "gate", id)
		return err
	case err != nil:
		never = "invalid: " + err.Error()
	}
	fate, err := w.conn.run(ctx, w.scripts.park, with(j.Waits(), w.id, w.run, id, never)...).Text()
	if err != nil {
		w.pending = append(w.pending, "gate", id)
		return trouble("check the dependencies of job "+id, err)
	}
	switch fate {
	case "ready":
		w.pending = append(w.pending, "free", id)
	case "failed":
		w.metrics.completed.WithLabelValues(w.id, string(hero.JobError), "dependency").Inc()
	}
	return nil
}

// look does what is due by the clock: requests to stop, the heartbeat, and a comparison of
// the taken list with the worker's state.
func (w *Worker) look(ctx context.Context) error {
	if len(w.running) > 0 {
		if err := w.stops(ctx); err != nil {
			return err
		}
	}
	if time.Since(w.beaten) < w.o.Beat {
		return nil
	}
	if err := w.script(ctx, w.scripts.beat, w.id, w.run, (beatsLost * w.o.Beat).Milliseconds()); err != nil {
		return trouble("send the heartbeat of worker "+w.id, err)
	}
	if w.beaten.IsZero() && w.o.Began != nil {
		w.o.Began()
	}
	w.beaten = time.Now()
	return w.compare(ctx)
}

// stops ends the runs that clients asked to stop. It removes requests for jobs that have
// ended, and keeps those for jobs that are queued or run elsewhere.
func (w *Worker) stops(ctx context.Context) error {
	if time.Since(w.stopped) < tick {
		return nil
	}
	w.stopped = time.Now()
	ids, err := w.db.LRange(ctx, StopQueue(w.id), 0, -1).Result()
	if err != nil {
		return trouble("read the stop queue of "+w.id, err)
	}
	for _, id := range ids {
		if r := w.running[id]; r != nil {
			r.cancel(errStopped)
		}
	}
	ids = ids[:min(len(ids), maxPruned)]
	for i, found := range w.statuses(ctx, ids) {
		status, err := found.Result()
		if err == nil && !hero.JobStatus(strings.ToLower(status)).Ended() || err != nil && !errors.Is(err, redis.Nil) {
			continue
		}
		if err := w.db.LRem(ctx, StopQueue(w.id), 0, ids[i]).Err(); err != nil {
			return trouble("clear the stop queue of "+w.id, err)
		}
	}
	return nil
}

// maxPruned bounds the requests to stop that one look removes.
const maxPruned = 100

// compare puts back jobs in the taken list that the worker does not know, because an answer
// of Redis was lost. It does so at the second look: at the first, the answer may be under
// way. It also ends the runs of jobs that a sweep gave to another worker.
func (w *Worker) compare(ctx context.Context) error {
	ids, err := w.db.LRange(ctx, w.taken, 0, -1).Result()
	if err != nil {
		return trouble("read the taken list", err)
	}
	there, strays, back := map[string]bool{}, map[string]bool{}, []string(nil)
	known := map[string]bool{}
	for id := range w.running {
		known[id] = true
	}
	for _, r := range w.done {
		known[r.id] = true
	}
	for i := 1; i < len(w.pending); i += 2 {
		known[w.pending[i]] = true
	}
	for _, id := range ids {
		there[id] = true
		switch {
		case known[id]:
		case w.strays[id]:
			back = append(back, id)
		default:
			strays[id] = true
		}
	}
	w.strays = strays
	for id, r := range w.running {
		if !there[id] {
			r.cancel(errLost)
		}
	}
	if n, err := w.db.LLen(ctx, w.scheme.WorkQueue(w.id)).Result(); err == nil {
		w.metrics.depth.WithLabelValues(w.id).Set(float64(n))
	}
	if len(back) == 0 {
		return nil
	}
	w.hungry = true
	return w.putBack(ctx, back)
}

// recordAll records all ended jobs, in as many rounds as it takes.
func (w *Worker) recordAll(ctx context.Context) error {
	for len(w.done) > 0 {
		n := min(len(w.done), maxBatch)
		answer, err := w.exchange(ctx, n, 0, nil)
		if err != nil {
			return trouble("record the last results of "+w.id, err)
		}
		w.recorded(texts(answer[0]))
	}
	return nil
}
