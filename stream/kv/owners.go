package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/stream/wire"
)

const (
	// OwnersBucket is the KV bucket that records the tenants of each store's instances, also
	// while no process runs. Its keys are the ids of stores.
	OwnersBucket = "EDDA_OWNERS"
	// ownerSeen is how often a process updates its last-seen time, which a refusal shows.
	ownerSeen = time.Minute
	// everyTenant is the pattern of a process that serves all tenants.
	everyTenant = "*"
)

// owner is the record of a store. It outlives every lease.
type owner struct {
	Store   string        `json:"store"`
	Host    string        `json:"host"`
	Process string        `json:"process"`         // the last one that used the store
	Epoch   uint64        `json:"epoch,omitempty"` // of its lease
	First   time.Time     `json:"first"`
	Seen    time.Time     `json:"seen"`
	Share   edda.Share    `json:"share,omitzero"`
	Claims  []tenantClaim `json:"claims"`

	revision uint64 // of the record in the bucket; 0 for a new one
}

// tenantClaim is a tenant pattern that a store owns. If two stores claim the same tenant, the one
// with the higher order owns it, because it was admitted later.
type tenantClaim struct {
	Pattern string `json:"pattern"`
	Order   uint64 `json:"order"`
}

// orderOf returns the order of the store's claim on all tenants of a pattern; 0 if it has none.
func (o owner) orderOf(pattern string) (order uint64) {
	for _, c := range o.Claims {
		if c.Pattern == pattern || c.Pattern == everyTenant || !strings.Contains(pattern, "*") && edda.Matches(c.Pattern, pattern) {
			order = max(order, c.Order)
		}
	}
	return order
}

// newerClaims returns the patterns of the other store that override ours.
func (o owner) newerClaims(other owner, pattern string) (out []string) {
	mine := o.orderOf(pattern)
	for _, c := range other.Claims {
		if c.Order > mine && (wire.Tenants{c.Pattern}).Overlap(wire.Tenants{pattern}) {
			out = append(out, c.Pattern)
		}
	}
	return out
}

// claimTenants records the tenants as owned by our store, for good. The error is edda.Permanent if
// another store was admitted for some of them later, because its instances are not here. The lease
// prevents concurrent claims of two stores. Of the same store, a process that was frozen may write
// behind its successor: it is overtaken, and looks again.
func (l *Lease) claimTenants(ctx context.Context, tenants wire.Tenants) error {
	if l.held.Worker != nil {
		return nil // workers have no instances
	}
	retry := backoff.Exponential{First: takeFirst, Most: takeMost}
	for try := 1; ; try++ {
		err := l.claimOnce(ctx, tenants)
		if !Overtaken(err) || try == takeTries {
			return err
		}
		if err := backoff.Wait(ctx, retry.Next()); err != nil {
			return err
		}
	}
}

// claimOnce looks at all claims and writes ours.
func (l *Lease) claimOnce(ctx context.Context, tenants wire.Tenants) error {
	kv, err := OpenBucket(ctx, l.js, jetstream.KeyValueConfig{
		Bucket: OwnersBucket, Description: "edda: which store has the instances of which tenants",
		Storage: l.bucket.Storage, Replicas: l.bucket.Replicas,
	})
	if err != nil {
		return err
	}
	all, err := everyOwner(ctx, l.js, kv)
	if err != nil {
		return err
	}
	mine, known := all[l.held.Store]
	if known && l.ownsTenants && mine.Process != l.held.Process && !supersedes(l.held.Epoch, mine.Epoch) {
		return edda.Classify(edda.Permanent, "process %s on host %s has worked with store %s since", mine.Process, mine.Host, mine.Store)
	}
	next := owner{Store: l.held.Store, Host: l.held.Host, Process: l.held.Process, Epoch: l.held.Epoch, First: mine.First, Seen: time.Now().UTC(), Share: l.held.Share, revision: mine.revision}
	if !known {
		next.First = next.Seen
	}
	var last uint64
	for _, other := range all {
		for _, c := range other.Claims {
			last = max(last, c.Order)
		}
	}
	if len(tenants) == 0 {
		tenants = wire.Tenants{everyTenant}
	}
	taken := map[string][]string{} // patterns by store
	for _, pattern := range tenants {
		order := mine.orderOf(pattern)
		if order == 0 {
			order = last + 1
		}
		for id, other := range all {
			if id == l.held.Store || l.held.Share.Beside(other.Share) || !known && l.madeOf != nil && l.madeOf(id) {
				continue
			}
			if newer := mine.newerClaims(other, pattern); len(newer) > 0 {
				taken[id], order = append(taken[id], newer...), last+1
			}
		}
		next.Claims = append(next.Claims, tenantClaim{pattern, order})
	}
	var whose []string
	for id, patterns := range taken {
		whose = append(whose, fmt.Sprintf("store %s on host %s served %s from %s to %s", id, all[id].Host, tenantsOf(patterns), stamp(all[id].First), stamp(all[id].Seen)))
	}
	slices.Sort(whose)
	if len(whose) > 0 && !l.mayAdopt {
		return edda.Classify(edda.Permanent,
			"%s: its instances and timers are not in this store, %s: start with the data folder of that store, restore a backup of it (edda restore), take these tenants out of its tenants: and start it once, or go on without its instances with --adopt-empty",
			strings.Join(whose, "; "), l.held.Store)
	}
	if err := putOwner(ctx, kv, next); err != nil {
		return err
	}
	l.recorded, l.ownsTenants = time.Now(), true
	l.adopted, l.mayAdopt = append(l.adopted, whose...), false // the operator accepted these only
	return nil
}

func tenantsOf(patterns []string) string {
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	if slices.Contains(patterns, everyTenant) {
		return "all tenants"
	}
	return "the tenants " + strings.Join(patterns, ", ")
}

// Adopted describes the stores whose tenants were taken over without their instances, for the log
// and the audit.
func (l *Lease) Adopted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.adopted)
}

// touchOwner updates the last-seen time now and then. It also recreates a missing bucket, because
// the records must outlive this process.
func (l *Lease) touchOwner(ctx context.Context, now bool) {
	if l.held.Worker != nil || !l.ownsTenants || !now && time.Since(l.recorded) < ownerSeen {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	if err := l.claimTenants(ctx, l.held.Tenants); err != nil && ctx.Err() == nil {
		l.log.Warn("recording the tenants served here failed, trying again", zap.Error(err))
	}
}

func everyOwner(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) (map[string]owner, error) {
	keys, err := keys(ctx, js, OwnersBucket)
	if err != nil {
		return nil, fmt.Errorf("list the stores of bucket %s: %w", OwnersBucket, err)
	}
	out := map[string]owner{}
	for _, key := range keys {
		e, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // removed by hand
		}
		if err != nil {
			return nil, fmt.Errorf("look at store %s in bucket %s: %w", key, OwnersBucket, err)
		}
		var o owner
		if err := json.Unmarshal(e.Value(), &o); err != nil {
			return nil, edda.Classify(edda.Permanent, "entry %s of bucket %s cannot be read: look at it with nats kv get, or remove it with nats kv del", key, OwnersBucket)
		}
		o.revision = e.Revision()
		out[key] = o
	}
	return out, nil
}

// putOwner writes a record over the revision that was read.
func putOwner(ctx context.Context, kv jetstream.KeyValue, o owner) error {
	value, err := json.Marshal(o)
	if err == nil {
		_, err = put(ctx, kv, o.Store, value, o.revision)
	}
	if err != nil {
		return fmt.Errorf("record the tenants served here: %w", err)
	}
	return nil
}
