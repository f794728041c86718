package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// Unowned returns an edda.Permanent error if another store than this one, and than those beside it, has instances of the
// tenants.
func Unowned(ctx context.Context, js jetstream.JetStream, store string, tenants wire.Tenants, share edda.Share) error {
	bucket, err := js.KeyValue(ctx, OwnersBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", OwnersBucket, err)
	}
	all, err := everyOwner(ctx, js, bucket)
	if err != nil {
		return err
	}
	var whose []string
	for id, o := range all {
		for _, c := range o.Claims {
			if id != store && !share.Beside(o.Share) && (wire.Tenants{c.Pattern}).Overlap(tenants) {
				whose = append(whose, fmt.Sprintf("store %s on host %s served %s until %s", id, o.Host, tenantsOf([]string{c.Pattern}), stamp(o.Seen)))
				break
			}
		}
	}
	if len(whose) == 0 {
		return nil
	}
	slices.Sort(whose)
	return edda.Classify(edda.Permanent, "%s: its instances are not in this new store: begin the cluster on the machine that has that store, with its --data, "+
		"or go on without its instances with --adopt-empty", strings.Join(whose, "; "))
}
