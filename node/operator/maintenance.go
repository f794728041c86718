// Package operator carries out what operators ask of a store and its process: commands on dead
// letters, and clean-up, check, copy and compaction of the store. Every command is audited in
// the commit that carries it out, or beside it. Commands on instances are events and go
// through the engine.
package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/retention"
	"edda/server"
	"edda/store"
)

// maxBackup bounds how long a backup pins pages of the store.
const maxBackup = time.Hour

// Maintenance cleans up, checks, copies and compacts a store. It is safe
// for concurrent use. A stop of the process cancels its calls.
type Maintenance struct {
	db      *store.DB
	sweeper *retention.Sweeper
	copies  sync.Mutex // held by the backup of the whole store: one at a time
	// tenantCopies is held by the backup of a tenant: one at a time.
	tenantCopies sync.Mutex

	mu     sync.Mutex // guards the fields below
	ended  bool
	cancel map[int]context.CancelFunc
	calls  sync.WaitGroup
	n      int
}

// NewMaintenance makes the maintenance of a store. It calls settings at the start of each
// clean-up.
func NewMaintenance(db *store.DB, settings func() (retention.Settings, error), log *zap.Logger, metrics prometheus.Registerer) (*Maintenance, error) {
	m := &Maintenance{db: db, cancel: map[int]context.CancelFunc{}}
	var err error
	m.sweeper, err = retention.New(db, settings, retention.Options{Log: log, Metrics: metrics})
	return m, err
}

// Run removes expired rows until ctx ends. Then it cancels the calls in flight and waits
// for them.
func (m *Maintenance) Run(ctx context.Context) error {
	err := m.sweeper.Run(ctx)
	m.mu.Lock()
	m.ended = true
	for _, cancel := range m.cancel {
		cancel()
	}
	m.mu.Unlock()
	m.calls.Wait()
	return err
}

var errStopping = edda.Classify(edda.Temporary, "the process is stopping")

// begin returns a context for a call that also ends with the process. The caller must call
// end.
func (m *Maintenance) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, nil, errStopping
	}
	ctx, cancel := context.WithCancel(ctx)
	m.n++
	n := m.n
	m.cancel[n] = cancel
	m.calls.Add(1)
	return ctx, func() {
		m.mu.Lock()
		delete(m.cancel, n)
		m.mu.Unlock()
		cancel()
		m.calls.Done()
	}, nil
}

// during runs one call between begin and end.
func during[T any](ctx context.Context, m *Maintenance, do func(context.Context) (T, error)) (out T, err error) {
	ctx, end, err := m.begin(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	return do(ctx)
}

// auditEntry makes an entry of the audit.
func auditEntry(who server.Operator, verb, detail string) store.Audit {
	return store.Audit{Time: time.Now(), By: cmp.Or(who.By, "unknown"), Verb: verb, Reason: who.Why, Detail: detail}
}

// Audit writes the audit entry of a command.
func (m *Maintenance) Audit(ctx context.Context, who server.Operator, verb, detail string) error {
	return m.db.Commit(ctx, store.Change{Audits: []store.Audit{auditEntry(who, verb, detail)}})
}

// Collect removes expired rows.
func (m *Maintenance) Collect(ctx context.Context, q server.Collect, tell func(any)) (retention.Report, error) {
	return during(ctx, m, func(ctx context.Context) (retention.Report, error) {
		audit := auditEntry(q.Operator, "gc", "")
		return m.sweeper.Collect(ctx, retention.Request{
			DryRun: q.DryRun, TrustClock: q.TrustClock, Audit: &audit, Tell: func(r retention.Report) { tell(r.String()) },
		})
	})
}

// Doctor checks the store. It writes no audit entry.
func (m *Maintenance) Doctor(ctx context.Context, tell func(any)) (server.Doctor, error) {
	return during(ctx, m, func(ctx context.Context) (server.Doctor, error) {
		size, err := m.db.Size()
		if err != nil {
			return server.Doctor{}, err
		}
		health, err := m.db.Doctor(ctx, func(rows int) { tell(fmt.Sprintf("%d rows read", rows)) })
		return server.DoctorOf(health, size), err
	})
}

// Compact returns the free space of the store to the file system.
func (m *Maintenance) Compact(ctx context.Context, who server.Operator, tell func(any)) (store.Compaction, error) {
	return during(ctx, m, func(ctx context.Context) (store.Compaction, error) {
		c, err := m.db.Compact(ctx, func(rows int) { tell(fmt.Sprintf("%d rows copied and compared", rows)) })
		if err != nil {
			return c, err
		}
		return c, m.Audit(ctx, who, "compact", fmt.Sprintf("%d bytes, %d before; commits waited %s", c.After, c.Before, c.Pause))
	})
}

// Backup copies one tenant's rows, or the whole store without a tenant, to the writer that
// start returns. It commits the audit entry first, so that the copy includes it.
func (m *Maintenance) Backup(ctx context.Context, who server.Operator, tenant string, start func(store.Backup) io.Writer) (store.Backup, error) {
	return during(ctx, m, func(ctx context.Context) (store.Backup, error) {
		if !m.copying(tenant).TryLock() {
			return store.Backup{}, edda.Classify(edda.Temporary, "another backup is under way: one at a time, since each holds pages of the store")
		}
		defer m.copying(tenant).Unlock()
		ctx, cancel := context.WithTimeout(ctx, maxBackup)
		defer cancel()
		audit := auditEntry(who, "backup", "")
		audit.Key.Tenant = tenant // empty: the whole process
		if err := m.db.Commit(ctx, store.Change{Audits: []store.Audit{audit}}); err != nil {
			return store.Backup{}, err
		}
		// gofail: var backupAudited struct{}
		s, err := m.snapshot(ctx, tenant)
		if err != nil {
			return store.Backup{}, err
		}
		defer s.Close()
		err = s.WriteTo(ctx, start(s.Backup))
		return s.Backup, err
	})
}

// copying returns the lock of a backup. There are two, so that a slow reader of a tenant's
// backup does not block a backup of the whole store.
func (m *Maintenance) copying(tenant string) *sync.Mutex {
	if tenant == "" {
		return &m.copies
	}
	return &m.tenantCopies
}

func (m *Maintenance) snapshot(ctx context.Context, tenant string) (*store.Snapshot, error) {
	if tenant == "" {
		return m.db.Snapshot()
	}
	return m.db.SnapshotOf(ctx, tenant, nil)
}
