package node

import (
	"context"
	"errors"

	"edda/store"
	"edda/stream/clusterlog"
	"edda/stream/clusternodes"
	"edda/stream/kv"
	"edda/stream/wire"
)

// mayJoin refuses a start that does not fit before it creates a bucket or a log, which would stay. What it does not see
// yet is refused later.
func (t *stay) mayJoin(ctx context.Context) error {
	agreed, known, err := clusternodes.AgreedOn(ctx, t.js, t.settings.Cluster.Name)
	switch {
	case err != nil:
		return err
	case known && t.settings.share.Index > 0:
		return t.settings.fits(agreed)
	case known, len(t.settings.Manifests) == 0: // it founds no cluster
		return nil
	case t.conn.ConnectedClusterName() == "": // a server that is alone refuses the log, and says so
		return nil
	}
	if err := t.replicated(ctx); err != nil || store.Exists(t.dir()) || t.settings.AdoptEmpty {
		return err
	}
	if lost, err := clusterlog.Exists(ctx, t.js, t.settings.logName()); err != nil || lost { // a node with a copy says how to go on
		return err
	}
	return kv.Unowned(ctx, t.js, "", t.settings.Tenants, t.settings.share)
}

// replicated refuses streams and buckets that the owner of a cluster's store could not use. A store that a cluster has
// taken does not run without it any more.
func (t *stay) replicated(ctx context.Context) error {
	streams := []string{wire.AggregateEvents, wire.WorkflowCommands, wire.WorkflowEvents, "KV_" + kv.LeaseBucket, "KV_" + kv.OwnersBucket}
	if t.settings.effects() && t.settings.ledger() == ledgerShared {
		streams = append(streams, "KV_"+kv.LedgerBucket)
	}
	var problems []error
	for _, name := range streams {
		problems = append(problems, kv.NeedReplicas(ctx, t.js, name, leastReplicas))
	}
	return errors.Join(problems...)
}
