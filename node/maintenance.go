package node

import (
	"context"
	"fmt"
	"io"

	"go.uber.org/zap"

	"edda/node/operator"
	"edda/retention"
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
func (p *process) Backup(ctx context.Context, who server.Actor, tenant string, start func(store.Backup) io.Writer) error {
	b, err := p.maintenance.Backup(ctx, who, tenant, start)
	if err == nil {
		p.log.Info("backup", zap.String("tenant", tenant), zap.Uint64("commit", b.Commit), zap.Int64("bytes", b.Bytes), zap.String("sha256", b.Sum), zap.String("by", who.By))
	}
	return err
}

// Doctor checks the store.
func (p *process) Doctor(ctx context.Context, who server.Actor, tell func(any)) (server.Doctor, error) {
	d, err := p.maintenance.Doctor(ctx, tell)
	if err != nil {
		return d, err
	}
	return d, p.maintenance.Audit(ctx, who, "doctor", fmt.Sprintf("%d findings, %d instances wait for nothing", len(d.Findings), d.IdleTotal))
}

// Compact returns the free space of the store to the file system.
func (p *process) Compact(ctx context.Context, who server.Actor, tell func(any)) (store.Compaction, error) {
	c, err := p.maintenance.Compact(ctx, who, tell)
	if err == nil {
		p.log.Info("the store is compacted", zap.Int64("before", c.Before), zap.Int64("after", c.After), zap.Duration("commits_waited", c.Pause), zap.Duration("took", c.Took))
	}
	return c, err
}
