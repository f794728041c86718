package node

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda/cluster"
	"edda/server"
)

const (
	// spreadEvery is how often a node looks how the shards are spread.
	spreadEvery = time.Second
	// spreadAfter is how long the nodes must be the same before a shard moves: a node that restarts is soon back.
	spreadAfter = 5 * time.Second
)

// spread hands shards of this node over until they are spread evenly over the nodes, each time after a node has come or
// gone. Between these times an operator's moves last.
func spread(ctx context.Context, nodes []*clusterNode, log *zap.Logger) error {
	tick := time.NewTicker(spreadEvery)
	defer tick.Stop()
	var known []string
	since, due := time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		me, alive, shards, ok := placed(nodes)
		if !ok {
			continue
		}
		if !slices.Equal(alive, known) {
			known, since, due = alive, time.Now(), true
		}
		if !due || time.Since(since) < spreadAfter {
			continue
		}
		shard, to, settled := cluster.Even(me, alive, shards)
		due = !settled
		if to == "" {
			continue
		}
		since = time.Now() // the next one moves when this one has arrived
		who := server.Operator{By: "edda", Why: "the shards are spread evenly over the nodes"}
		t := nodes[shard].metrics.stay.Load()
		if t == nil { // the stay has just ended
			continue
		}
		if _, err := t.Move(ctx, to, who); err != nil {
			log.Warn("a shard that should move stays for now", zap.Int("shard", shard), zap.String("to", to), zap.Error(err))
		}
	}
}

// placed is what this node knows of the owners and the copies of all shards; false while one of them is between two
// stays.
func placed(nodes []*clusterNode) (me string, alive []string, shards []cluster.Placed, ok bool) {
	living := map[string]int{}
	for _, n := range nodes {
		t := n.metrics.stay.Load()
		if t == nil || t.nodes.Load() == nil {
			return "", nil, nil, false
		}
		me = t.node
		living[me]++
		var p cluster.Placed
		holders := t.holders()
		if t.beat().Owner {
			p.Owner = me
		}
		for _, m := range t.others() {
			switch {
			case m.Dead:
				continue
			case m.Beat.Owner:
				p.Owner = m.ID
			case m.Beat.Following && slices.Contains(holders, m.ID):
				p.Heirs = append(p.Heirs, m.ID)
			}
			living[m.ID]++
		}
		p.Guest = !slices.Contains(holders, p.Owner)
		shards = append(shards, p)
	}
	maps.DeleteFunc(living, func(_ string, n int) bool { return n < len(nodes) }) // it joins some shards only yet
	return me, slices.Sorted(maps.Keys(living)), shards, true
}
