package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda/effects"
	"edda/server"
	"edda/store"
	"edda/stream/kv"
	"edda/stream/wire"
)

// The places of the claims of effect commands: the store of the only worker, or the bucket
// that all workers share.
const (
	ledgerLocal  = "local"
	ledgerShared = "shared"
)

const (
	// minRetention is longer than any redelivery of a command takes.
	minRetention = time.Hour
	// minLease and minAckWait leave time for a busy server and its disk.
	minLease   = time.Second
	minAckWait = time.Second
	// minHeldBytes has room for the largest command that a saga emits.
	minHeldBytes = 1 << 20
)

// ledger returns the configured ledger, or the default of the role.
func (c Config) ledger() string {
	if c.Effects.Ledger != "" {
		return c.Effects.Ledger
	}
	if c.effects() && !c.sagas() {
		return ledgerShared
	}
	return ledgerLocal
}

// handoff reports whether effect commands are handed over within the process. The ledger must
// be local, or another worker could take the same command.
func (c Config) handoff() bool {
	return c.Effects.Handoff && c.sagas() && c.effects() && c.ledger() == ledgerLocal
}

func (c effectsConfig) validate() error {
	switch {
	case !slices.Contains([]string{"", ledgerLocal, ledgerShared}, c.Ledger):
		return configf("effects.ledger %q: want local or shared", c.Ledger)
	case c.Retention < minRetention:
		return configf("effects.retention %s: want %s or more; a command whose claim is forgotten may be called again", c.Retention, minRetention)
	case c.Lease != 0 && c.Lease < minLease:
		return configf("effects.lease %s: want %s or more", c.Lease, minLease)
	case c.AckWait != 0 && c.AckWait < minAckWait:
		return configf("effects.ack_wait %s: want %s or more", c.AckWait, minAckWait)
	case c.HeldBytes < minHeldBytes:
		return configf("effects.held_bytes %d: want %d or more", c.HeldBytes, minHeldBytes)
	}
	return nil
}

// openLedger opens the shared ledger; nil if the store is the ledger.
func (p *process) openLedger(ctx context.Context, l *pipeline) (effects.Ledger, error) {
	p.checkRetention(l)
	if p.settings.ledger() == ledgerLocal {
		return nil, nil
	}
	home, err := p.home()
	if err != nil {
		return nil, err
	}
	s := p.settings
	shared, err := kv.OpenLedger(ctx, l.js, kv.LedgerOptions{
		Home: home, Run: p.run, Former: p.db, Lease: s.Effects.Lease, Retention: s.Effects.Retention,
		Replicas: s.replicas(), MinReplicas: s.minReplicas(), SyncAlways: s.Dev && s.SyncStreams,
	})
	if err != nil {
		return nil, err
	}
	if d := shared.Durability(); d.Note != "" {
		p.log.Info("effect ledger", zap.String("bucket", kv.LedgerBucket), zap.Bool("created", d.Created), zap.String("note", d.Note))
	}
	since, err := shared.Since(ctx)
	if err != nil {
		return nil, err
	}
	if shared.Durability().Created && !since.IsZero() {
		p.ledgerRemade(ctx)
	}
	l.ledger = shared
	return shared, nil
}

// remakeLedger creates the bucket of the shared ledger again after it was deleted.
func (p *process) remakeLedger(ctx context.Context, ledger *kv.Ledger) error {
	if err := ledger.Remake(ctx); err != nil {
		return err
	}
	p.ledgerRemade(ctx)
	return nil
}

// ledgerRemade logs and audits that claims are lost, and what that means.
func (p *process) ledgerRemade(ctx context.Context) {
	const what = "bucket " + kv.LedgerBucket + " was gone and was made again: a command sent before counts as unknown, unless it is done; at_most_once is not called for it"
	p.log.Error("the effect ledger was lost", zap.String("what", what))
	p.remade.Inc()
	p.audited(ctx, server.Operator{By: "edda"}, "remake", what)
}

// home identifies the store and its place. A copy elsewhere has another home, because its
// file lock does not protect this store.
func (p *process) home() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w", err)
	}
	dir, err := filepath.Abs(p.settings.Data)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	sum := sha256.Sum256([]byte(host + "\x00" + dir))
	return p.db.ID() + "." + hex.EncodeToString(sum[:6]), nil
}

// lockedFile identifies the locked file on this machine; empty if that is unknown.
func (p *process) lockedFile() string {
	info, err := os.Stat(filepath.Join(p.settings.Data, p.settings.storeFolder(), store.FileName))
	if err != nil {
		return ""
	}
	if at, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", at.Dev, at.Ino)
	}
	return ""
}

// checkRetention warns if a command may outlive its claim.
func (p *process) checkRetention(l *pipeline) {
	for _, d := range l.durable {
		if d.Stream == wire.WorkflowCommands && (d.Age == 0 || d.Age > p.settings.Effects.Retention) && !l.warned {
			l.warned = true
			p.log.Warn("commands are kept longer than the claims on them: what comes again after effects.retention counts as unknown, and may be called again",
				zap.Duration("commands", d.Age), zap.Duration("retention", p.settings.Effects.Retention))
		}
	}
}

// acquireWorker takes the lease that keeps a second effect worker off the same commands,
// unless both share their ledger.
func (p *process) acquireWorker(ctx context.Context, l *pipeline) error {
	if l.workerLease != nil {
		return l.workerLease.Renew(ctx) // an earlier attempt acquired it
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	l.workerLease, err = kv.AcquireLease(ctx, l.js, kv.LeaseOptions{
		Store: p.db.ID(), Host: host, Process: ulid.Make().String(), Epoch: p.stay.epoch(), File: p.lockedFile(), Tenants: p.settings.Tenants, Share: p.settings.share,
		Worker:   &kv.WorkerLease{Effects: effectNames(p.effects), Shared: p.settings.ledger() == ledgerShared},
		Replicas: p.settings.replicas(), MinReplicas: p.settings.minReplicas(), Memory: p.settings.Dev, Log: p.log.Named("lease"),
	})
	return p.fenced(l, "effects", l.workerLease, err)
}

func effectNames(list []*effects.Effect) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

// keepLeases renews the leases until ctx ends, then releases them. It returns an error when
// one of them is lost.
func (p *process) keepLeases(ctx context.Context, conn *nats.Conn, leases ...*kv.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(leases))
	for _, lease := range leases {
		go func() {
			defer cancel()
			ended <- p.keepLease(ctx, conn, lease)
		}()
	}
	var errs []error
	for range leases {
		errs = append(errs, <-ended)
	}
	<-ctx.Done()
	return errors.Join(errs...)
}
