package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"edda"
	"edda/retention"
	"edda/server"
	"edda/store"
)

const (
	// maxBackup bounds how long a backup holds pages of the store.
	maxBackup = time.Hour
	// addrFile tells, beside a store, where the process that holds it listens.
	addrFile = "edda.addr"
)

// holderFile is what addrFile says.
type holderFile struct {
	Addr  string `json:"addr"`
	Store string `json:"store"`
}

// upkeep is what keeps the store of this process in shape. What it is asked for
// ends when the process stops.
type maintenance struct {
	db     *store.DB
	keeper *retention.Keeper
	copies sync.Mutex // held by one backup of the whole at a time
	// tenantCopies is held by one backup of one tenant at a time.
	tenantCopies sync.Mutex

	mu     sync.Mutex // guards what follows
	ended  bool
	cancel map[int]context.CancelFunc
	calls  sync.WaitGroup
	n      int
}

// newMaintenance asks for its settings at the beginning of each run.
func newMaintenance(db *store.DB, settings func() (retention.Settings, error), log *zap.Logger, metrics prometheus.Registerer) (*maintenance, error) {
	m := &maintenance{db: db, cancel: map[int]context.CancelFunc{}}
	var err error
	m.keeper, err = retention.New(db, settings, retention.Options{Log: log, Metrics: metrics})
	return m, err
}

func (p *process) buildMaintenance() (err error) {
	p.metrics.MustRegister(&sizeCollector{p.db})
	if p.maintenance, err = newMaintenance(p.db, p.retentionSettings, p.log.Named("retention"), p.metrics); err != nil {
		return err
	}
	text, err := json.Marshal(holderFile{Addr: p.server.Addr(), Store: p.db.ID()})
	if err == nil {
		err = os.WriteFile(p.addrFile(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("say where this process listens: %w", err)
	}
	return nil
}

func (p *process) addrFile() string {
	return filepath.Join(p.settings.Data, p.settings.storeFolder(), addrFile)
}

func (p *process) closeStore() error {
	err := os.Remove(p.addrFile())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.db.Close())
}

// Run removes what expires until ctx ends, and then ends what is under way.
func (m *maintenance) Run(ctx context.Context) error {
	err := m.keeper.Run(ctx)
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

// begin gives a call a context that also ends with the process; end must be called.
func (m *maintenance) begin(ctx context.Context) (_ context.Context, end func(), err error) {
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

// during runs one call.
func during[T any](ctx context.Context, m *maintenance, do func(context.Context) (T, error)) (out T, err error) {
	ctx, end, err := m.begin(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	return do(ctx)
}

// act is an entry of the audit.
func auditEntry(who server.Actor, verb, detail string) store.Audit {
	return store.Audit{Time: time.Now(), By: cmp.Or(who.By, "unknown"), Verb: verb, Reason: who.Why, Detail: detail}
}

func (m *maintenance) audit(ctx context.Context, who server.Actor, verb, detail string) error {
	return m.db.Commit(ctx, store.Change{Audits: []store.Audit{auditEntry(who, verb, detail)}})
}

func (m *maintenance) collect(ctx context.Context, q server.Collect, tell func(any)) (retention.Report, error) {
	return during(ctx, m, func(ctx context.Context) (retention.Report, error) {
		audit := auditEntry(q.Actor, "gc", "")
		return m.keeper.Collect(ctx, retention.Request{
			DryRun: q.DryRun, TrustClock: q.TrustClock, Audit: &audit, Tell: func(r retention.Report) { tell(r.String()) },
		})
	})
}

func (m *maintenance) doctor(ctx context.Context, tell func(any)) (server.Doctor, error) {
	return during(ctx, m, func(ctx context.Context) (server.Doctor, error) {
		size, err := m.db.Size()
		if err != nil {
			return server.Doctor{}, err
		}
		health, err := m.db.Doctor(ctx, func(rows int) { tell(fmt.Sprintf("%d rows read", rows)) })
		return server.DoctorOf(health, size), err
	})
}

func (m *maintenance) compact(ctx context.Context, who server.Actor, tell func(any)) (store.Compaction, error) {
	return during(ctx, m, func(ctx context.Context) (store.Compaction, error) {
		c, err := m.db.Compact(ctx, func(rows int) { tell(fmt.Sprintf("%d rows copied and compared", rows)) })
		if err != nil {
			return c, err
		}
		return c, m.audit(ctx, who, "compact", fmt.Sprintf("%d bytes, %d before; commits waited %s", c.After, c.Before, c.Pause))
	})
}

// backup copies to what start gives: what is one tenant's, or of none the whole
// store. The audit comes first, so that the copy has it.
func (m *maintenance) backup(ctx context.Context, who server.Actor, tenant string, start func(store.Backup) io.Writer) (store.Backup, error) {
	return during(ctx, m, func(ctx context.Context) (store.Backup, error) {
		if !m.copying(tenant).TryLock() {
			return store.Backup{}, edda.Classify(edda.Temporary, "another backup is under way: one at a time, since each holds pages of the store")
		}
		defer m.copying(tenant).Unlock()
		ctx, cancel := context.WithTimeout(ctx, maxBackup)
		defer cancel()
		audit := auditEntry(who, "backup", "")
		audit.Key.Tenant = tenant // empty: an act on the whole process
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

// copying keeps backups apart: a tenant that takes one slowly keeps nobody from
// a backup of the whole.
func (m *maintenance) copying(tenant string) *sync.Mutex {
	if tenant == "" {
		return &m.copies
	}
	return &m.tenantCopies
}

func (m *maintenance) snapshot(ctx context.Context, tenant string) (*store.Snapshot, error) {
	if tenant == "" {
		return m.db.Snapshot()
	}
	return m.db.SnapshotOf(ctx, tenant, nil)
}

// Collect removes what has expired.
func (p *process) Collect(ctx context.Context, q server.Collect, tell func(any)) (retention.Report, error) {
	return p.maintenance.collect(ctx, q, tell)
}

// Backup copies the store, or one tenant's part of it.
func (p *process) Backup(ctx context.Context, who server.Actor, tenant string, start func(store.Backup) io.Writer) error {
	b, err := p.maintenance.backup(ctx, who, tenant, start)
	if err == nil {
		p.log.Info("backup", zap.String("tenant", tenant), zap.Uint64("commit", b.Commit), zap.Int64("bytes", b.Bytes), zap.String("sha256", b.Sum), zap.String("by", who.By))
	}
	return err
}

// Doctor checks the store.
func (p *process) Doctor(ctx context.Context, who server.Actor, tell func(any)) (server.Doctor, error) {
	d, err := p.maintenance.doctor(ctx, tell)
	if err != nil {
		return d, err
	}
	return d, p.maintenance.audit(ctx, who, "doctor", fmt.Sprintf("%d findings, %d instances wait for nothing", len(d.Findings), d.IdleTotal))
}

// Compact gives the store's free space back.
func (p *process) Compact(ctx context.Context, who server.Actor, tell func(any)) (store.Compaction, error) {
	c, err := p.maintenance.compact(ctx, who, tell)
	if err == nil {
		p.log.Info("the store is compacted", zap.Int64("before", c.Before), zap.Int64("after", c.After), zap.Duration("commits_waited", c.Pause), zap.Duration("took", c.Took))
	}
	return c, err
}

// sizeCollector shows how large the store's file is.
type sizeCollector struct{ db *store.DB }

func sizeDesc() *prometheus.Desc {
	return prometheus.NewDesc("edda_store_bytes", "Size of the store's file: in use, and free for commits to use again.", []string{"state"}, nil)
}

func (c *sizeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- sizeDesc() }

func (c *sizeCollector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.db.Size()
	if err != nil {
		return // it is being closed
	}
	ch <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(s.Bytes-s.Free), "used")
	ch <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(s.Free), "free")
}
