package operator

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/server"
	"edda/store"
	"edda/stream"
)

// Quarantine lists dead letters and carries out the commands on those without an instance.
// It counts and logs the commands on dead letters and on instances. It implements
// [server.DeadLetters].
type Quarantine struct {
	db        *store.DB
	publisher func() (*stream.Publisher, error)
	log       *zap.Logger
	commands  *prometheus.CounterVec
	settled   *prometheus.CounterVec
	// mu serializes the commands, so that two concurrent calls send a dead letter once.
	mu sync.Mutex
}

// Options are those of a [Quarantine]. All are required.
type Options struct {
	// Publisher returns what publishes to the streams, or an error before they are reached.
	Publisher func() (*stream.Publisher, error)
	MaxBytes  int // bound of a tenant's dead letters, for the metrics
	Log       *zap.Logger
	Metrics   prometheus.Registerer
}

// NewQuarantine makes the quarantine of a store.
func NewQuarantine(db *store.DB, o Options) *Quarantine {
	q := &Quarantine{
		db: db, publisher: o.Publisher, log: o.Log,
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_operator_acts_total", Help: "Operators' verbs that were committed, by verb.",
		}, []string{"verb"}),
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edda_dead_letters_settled_total", Help: "Dead letters that were redriven, dropped or skipped, by verb and by the reason they died of.",
		}, []string{"verb", "reason"}),
	}
	o.Metrics.MustRegister(q.commands, q.settled, &queueCollector{db, o.MaxBytes})
	return q
}

// DeadLetters lists dead letters, oldest first.
func (q *Quarantine) DeadLetters(after string, limit int) ([]edda.DeadLetter, error) {
	return q.db.DeadLetters(after, limit)
}

// DeadLetter finds a dead letter by its id.
func (q *Quarantine) DeadLetter(id string) (edda.DeadLetter, bool, error) {
	return q.db.DeadLetter(id)
}

// errNoWork refuses the redrive of refused work that the dead letter does not contain.
var errNoWork = edda.Classify(edda.Permanent, "the dead letter does not hold the work that was refused: it can only be dropped")

// Redeliver sends the message or the work of a dead letter without an instance again, and
// removes the dead letter. A mutex serializes the calls, so that two concurrent calls
// send it once. After a crash in between, the dead letter still exists, and the message
// id stays the same.
func (q *Quarantine) Redeliver(ctx context.Context, d edda.DeadLetter, data json.RawMessage, by store.Audit) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.there(d); err != nil {
		return "", err
	}
	if d.Reason == edda.DeadRejected {
		return q.workAgain(ctx, d, data, by)
	}
	to, err := q.publisher()
	if err != nil {
		return "", err
	}
	sent, err := to.Resend(ctx, d, data, "redrive-"+d.ID+"-"+strconv.Itoa(d.Event.Redrives+1))
	if err != nil {
		return "", err
	}
	// gofail: var letterResent struct{}
	return sent.Subject, q.resolve(ctx, edda.Transition{Resolved: []string{d.ID}}, d, by, "sent to "+sent.Subject)
}

// ReadBack reads the missing payload of a dead letter from its stream.
func (q *Quarantine) ReadBack(ctx context.Context, d edda.DeadLetter) (edda.DeadLetter, error) {
	from, err := q.publisher()
	if err != nil {
		return d, err
	}
	return from.ReadBack(ctx, d)
}

// workAgain puts refused work back into the outbox. The same commit removes the dead
// letter. The work keeps its id, because its destination never accepted it.
func (q *Quarantine) workAgain(ctx context.Context, d edda.DeadLetter, data json.RawMessage, by store.Audit) (string, error) {
	if d.Work == nil {
		return "", errNoWork
	}
	w := *d.Work
	if len(data) > 0 {
		w.Payload = data
	}
	return "outbox", q.resolve(ctx, edda.Transition{Key: w.From, Work: []edda.Work{w}, Resolved: []string{d.ID}}, d, by, "back in the outbox")
}

// Drop removes a dead letter that holds no key.
func (q *Quarantine) Drop(ctx context.Context, d edda.DeadLetter, by store.Audit) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.there(d); err != nil {
		return err
	}
	return q.resolve(ctx, edda.Transition{Resolved: []string{d.ID}}, d, by, "dropped")
}

// Note writes the audit entry of a command on many dead letters. Each has its own entry too.
func (q *Quarantine) Note(ctx context.Context, by store.Audit) error {
	return q.db.Commit(ctx, store.Change{Audits: []store.Audit{by}})
}

// there checks that the dead letter is still the one that the caller saw.
func (q *Quarantine) there(d edda.DeadLetter) error {
	now, found, err := q.db.DeadLetter(d.ID)
	switch {
	case err != nil:
		return err
	case !found || now.Event.Redrives != d.Event.Redrives:
		return server.ErrGone
	}
	return nil
}

// resolve removes the dead letter and writes the audit entry with its fate, in one commit.
// It ignores the end of ctx, because a message that was sent must not be sent again.
func (q *Quarantine) resolve(ctx context.Context, t edda.Transition, d edda.DeadLetter, by store.Audit, fate string) error {
	by.Time = time.Now().UTC()
	by.Detail += "; " + fate
	if t.Key == (edda.Key{}) {
		t.Key = by.Key
	}
	// gofail: var letterBeforeMark struct{}
	err := q.db.Commit(context.WithoutCancel(ctx), store.Change{Transitions: []edda.Transition{t}, Audits: []store.Audit{by}})
	// gofail: var letterMarked struct{}
	if err != nil {
		return errors.Join(errors.New("the dead letter could not be removed"), err)
	}
	q.settle(by.Verb, d.Reason)
	q.log.Info("dead letter: an operator acted", zap.String("verb", by.Verb), zap.String("dead_letter", d.ID), zap.String("reason", d.Reason),
		zap.String("tenant", by.Key.Tenant), zap.String("saga", by.Key.Saga), zap.String("correlation", by.Key.Correlation),
		zap.String("by", by.By), zap.String("why", by.Reason), zap.String("fate", fate))
	return nil
}
