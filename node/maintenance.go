package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/node/operator"
	"edda/node/versions"
	"edda/retention"
	"edda/saga"
	"edda/server"
	"edda/store"
)

// Maintenance returns the maintenance of a store that no process holds. The configuration,
// and the manifests in the store, say what has expired.
func (c Config) Maintenance(db *store.DB) (*operator.Maintenance, error) {
	return operator.NewMaintenance(db, func() (retention.Settings, error) { return c.retentionOf(db) }, zap.NewNop(), nil)
}

// buildMaintenance makes the maintenance of the process's store.
func (p *process) buildMaintenance() (err error) {
	p.metrics.MustRegister(&sizeCollector{p.db})
	p.maintenance, err = operator.NewMaintenance(p.db, p.retentionSettings, p.log.Named("retention"), p.metrics)
	return err
}

// Collect removes expired rows.
func (p *process) Collect(ctx context.Context, q server.Collect, tell func(any)) (retention.Report, error) {
	return p.maintenance.Collect(ctx, q, tell)
}

// Backup copies the store, or the rows of one tenant.
func (p *process) Backup(ctx context.Context, who server.Operator, tenant string, start func(store.Backup) io.Writer) error {
	b, err := p.maintenance.Backup(ctx, who, tenant, start)
	if err == nil {
		p.log.Info("backup", zap.String("tenant", tenant), zap.Uint64("commit", b.Commit), zap.Int64("bytes", b.Bytes), zap.String("sha256", b.Sum), zap.String("by", who.By))
	}
	return err
}

// Doctor checks the store.
func (p *process) Doctor(ctx context.Context, who server.Operator, tell func(any)) (server.Doctor, error) {
	d, err := p.maintenance.Doctor(ctx, tell)
	if err != nil {
		return d, err
	}
	return d, p.maintenance.Audit(ctx, who, "doctor", fmt.Sprintf("%d findings, %d instances wait for nothing", len(d.Findings), d.IdleTotal))
}

// Compact returns the free space of the store to the file system.
func (p *process) Compact(ctx context.Context, who server.Operator, tell func(any)) (store.Compaction, error) {
	c, err := p.maintenance.Compact(ctx, who, tell)
	if err == nil {
		p.log.Info("the store is compacted", zap.Int64("before", c.Before), zap.Int64("after", c.After), zap.Duration("commits_waited", c.Pause), zap.Duration("took", c.Took))
	}
	return c, err
}

// retentionConfig says how long rows are kept; 0 means for ever. Claims have
// effects.retention, and a saga may have retention: in its manifest.
type retentionConfig struct {
	Instances   time.Duration `koanf:"instances" doc:"finished instances; 0 is for ever"` // finished instances
	History     time.Duration `koanf:"history" doc:"history of instances, in whole days"`
	DeadLetters time.Duration `koanf:"dead_letters" doc:"dead letters, since they were written"`
	Audit       time.Duration `koanf:"audit" doc:"audit entries"`
	Manifests   time.Duration `koanf:"manifests" doc:"texts of versions that nothing needs any more"` // unused texts
}

const retentionDay = 24 * time.Hour

// retentionDefaults keeps rows about as long as people ask about them.
func retentionDefaults() retentionConfig {
	return retentionConfig{
		Instances: 30 * retentionDay, History: 30 * retentionDay, DeadLetters: 90 * retentionDay, Audit: 365 * retentionDay,
		Manifests: 90 * retentionDay,
	}
}

func (c retentionConfig) validate() error {
	for _, s := range []struct {
		name string
		d    time.Duration
	}{{"instances", c.Instances}, {"history", c.History}, {"dead_letters", c.DeadLetters}, {"audit", c.Audit}, {"manifests", c.Manifests}} {
		if s.d != 0 && s.d < minRetention {
			return configf("retention.%s %s: want %s or more, or 0 to keep it for ever", s.name, s.d, minRetention)
		}
	}
	return nil
}

// retentionOf returns the retention of a store: the configuration, and the retention: in the
// newest stored text of each saga.
func (c Config) retentionOf(db *store.DB) (retention.Settings, error) {
	kept, err := db.Manifests()
	if err != nil {
		return retention.Settings{}, fmt.Errorf("read the kept manifests: %w", err)
	}
	own := ownRetention(kept)
	return retention.Settings{
		History: c.Retention.History, DeadLetters: c.Retention.DeadLetters, Audit: c.Retention.Audit, Claims: c.Effects.Retention,
		Manifests: c.Retention.Manifests,
		Instances: func(saga string, status edda.Status) time.Duration {
			if d, ok := own[saga].of(status); ok {
				return max(d, 1) // 0s in a manifest means at once, not for ever
			}
			return c.Retention.Instances
		},
	}, nil
}

// retentionSettings returns the retention with the running sagas.
func (p *process) retentionSettings() (retention.Settings, error) {
	s, err := p.settings.retentionOf(p.db)
	s.Loaded = loadedIn(usedPrograms{p}.Set())
	return s, err
}

// loadedIn returns a test for the texts that instances use.
func loadedIn(set *saga.Set) func(edda.Manifest) bool {
	loaded := map[versions.Text]bool{}
	if set != nil {
		for _, p := range set.Programs() {
			loaded[versions.TextOf(p)] = true
		}
	}
	return func(m edda.Manifest) bool {
		return loaded[versions.Text{Saga: m.Saga, Version: m.Version, Hash: m.Hash}]
	}
}

// sagaRetention is the retention: of one manifest. A nil field is not set.
type sagaRetention struct{ done, failed *manifests.Duration }

func (s sagaRetention) of(status edda.Status) (time.Duration, bool) {
	d := s.failed // also for undone instances
	if status == edda.StatusDone {
		d = s.done
	}
	if d == nil {
		return 0, false
	}
	return d.D, true
}

func ownRetention(kept []edda.Manifest) map[string]sagaRetention {
	kept = slices.SortedFunc(slices.Values(kept), func(a, b edda.Manifest) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), a.Loaded.Compare(b.Loaded))
	})
	own := map[string]sagaRetention{}
	for _, k := range kept {
		file, problems := manifests.Parse(k.Saga, []byte(k.Text))
		if problems.Failed() {
			continue // a text of an older Edda version: the configuration applies
		}
		for _, s := range file.Sagas {
			own[k.Saga] = sagaRetention{s.Done, s.Failed}
		}
	}
	return own
}
