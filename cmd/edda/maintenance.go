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
type upkeep struct {
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

// newUpkeep asks for its settings at the beginning of each run.
func newUpkeep(db *store.DB, settings func() (retention.Settings, error), log *zap.Logger, metrics prometheus.Registerer) (*upkeep, error) {
	u := &upkeep{db: db, cancel: map[int]context.CancelFunc{}}
	var err error
	u.keeper, err = retention.New(db, settings, retention.Options{Log: log, Metrics: metrics})
	return u, err
}

func (p *process) buildUpkeep() (err error) {
	p.metrics.MustRegister(&sizeCollector{p.db})
	if p.upkeep, err = newUpkeep(p.db, p.retentionSettings, p.log.Named("retention"), p.metrics); err != nil {
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
func (u *upkeep) Run(ctx context.Context) error {
	err := u.keeper.Run(ctx)
	u.mu.Lock()
	u.ended = true
	for _, cancel := range u.cancel {
		cancel()
	}
	u.mu.Unlock()
	u.calls.Wait()
	return err
}

var errStopping = edda.Classify(edda.Temporary, "the process is stopping")

// begin gives a call a context that also ends with the process; end must be called.
func (u *upkeep) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return nil, nil, errStopping
	}
	ctx, cancel := context.WithCancel(ctx)
	u.n++
	n := u.n
	u.cancel[n] = cancel
	u.calls.Add(1)
	return ctx, func() {
		u.mu.Lock()
		delete(u.cancel, n)
		u.mu.Unlock()
		cancel()
		u.calls.Done()
	}, nil
}

// during runs one call.
func during[T any](ctx context.Context, u *upkeep, do func(context.Context) (T, error)) (out T, err error) {
	ctx, end, err := u.begin(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	return do(ctx)
}

// act is an entry of the audit.
func act(who server.Actor, verb, detail string) store.Audit {
	return store.Audit{Time: time.Now(), By: cmp.Or(who.By, "unknown"), Verb: verb, Reason: who.Why, Detail: detail}
}

func (u *upkeep) audit(ctx context.Context, who server.Actor, verb, detail string) error {
	return u.db.Commit(ctx, store.Change{Audits: []store.Audit{act(who, verb, detail)}})
}

func (u *upkeep) collect(ctx context.Context, q server.Collect, tell func(any)) (retention.Report, error) {
	return during(ctx, u, func(ctx context.Context) (retention.Report, error) {
		audit := act(q.Actor, "gc", "")
		return u.keeper.Collect(ctx, retention.Request{
			DryRun: q.DryRun, TrustClock: q.TrustClock, Audit: &audit, Tell: func(r retention.Report) { tell(r.String()) },
		})
	})
}

func (u *upkeep) doctor(ctx context.Context, tell func(any)) (server.Doctor, error) {
	return during(ctx, u, func(ctx context.Context) (server.Doctor, error) {
		size, err := u.db.Size()
		if err != nil {
			return server.Doctor{}, err
		}
		health, err := u.db.Doctor(ctx, func(rows int) { tell(fmt.Sprintf("%d rows read", rows)) })
		return server.DoctorOf(health, size), err
	})
}

func (u *upkeep) compact(ctx context.Context, who server.Actor, tell func(any)) (store.Compaction, error) {
	return during(ctx, u, func(ctx context.Context) (store.Compaction, error) {
		c, err := u.db.Compact(ctx, func(rows int) { tell(fmt.Sprintf("%d rows copied and compared", rows)) })
		if err != nil {
			return c, err
		}
		return c, u.audit(ctx, who, "compact", fmt.Sprintf("%d bytes, %d before; commits waited %s", c.After, c.Before, c.Pause))
	})
}

// backup copies to what start gives: what is one tenant's, or of none the whole
// store. The audit comes first, so that the copy has it.
func (u *upkeep) backup(ctx context.Context, who server.Actor, tenant string, start func(store.Backup) io.Writer) (store.Backup, error) {
	return during(ctx, u, func(ctx context.Context) (store.Backup, error) {
		if !u.copying(tenant).TryLock() {
			return store.Backup{}, edda.Classify(edda.Temporary, "another backup is under way: one at a time, since each holds pages of the store")
		}
		defer u.copying(tenant).Unlock()
		ctx, cancel := context.WithTimeout(ctx, maxBackup)
		defer cancel()
		audit := act(who, "backup", "")
		audit.Key.Tenant = tenant // empty: an act on the whole process
		if err := u.db.Commit(ctx, store.Change{Audits: []store.Audit{audit}}); err != nil {
			return store.Backup{}, err
		}
		// gofail: var backupAudited struct{}
		s, err := u.snapshot(ctx, tenant)
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
func (u *upkeep) copying(tenant string) *sync.Mutex {
	if tenant == "" {
		return &u.copies
	}
	return &u.tenantCopies
}

func (u *upkeep) snapshot(ctx context.Context, tenant string) (*store.Snapshot, error) {
	if tenant == "" {
		return u.db.Snapshot()
	}
	return u.db.SnapshotOf(ctx, tenant, nil)
}

// Collect removes what has expired.
func (p *process) Collect(ctx context.Context, q server.Collect, tell func(any)) (retention.Report, error) {
	return p.upkeep.collect(ctx, q, tell)
}

// Backup copies the store, or one tenant's part of it.
func (p *process) Backup(ctx context.Context, who server.Actor, tenant string, start func(store.Backup) io.Writer) error {
	b, err := p.upkeep.backup(ctx, who, tenant, start)
	if err == nil {
		p.log.Info("backup", zap.String("tenant", tenant), zap.Uint64("commit", b.Commit), zap.Int64("bytes", b.Bytes), zap.String("sha256", b.Sum), zap.String("by", who.By))
	}
	return err
}

// Doctor checks the store.
func (p *process) Doctor(ctx context.Context, who server.Actor, tell func(any)) (server.Doctor, error) {
	d, err := p.upkeep.doctor(ctx, tell)
	if err != nil {
		return d, err
	}
	return d, p.upkeep.audit(ctx, who, "doctor", fmt.Sprintf("%d findings, %d instances wait for nothing", len(d.Findings), d.IdleTotal))
}

// Compact gives the store's free space back.
func (p *process) Compact(ctx context.Context, who server.Actor, tell func(any)) (store.Compaction, error) {
	c, err := p.upkeep.compact(ctx, who, tell)
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
