package cluster

import (
	"cmp"
	"maps"
	"slices"
)

// Placed is what a node knows of one shard: who owns it, and which other nodes could take it over.
type Placed struct {
	Owner string   // empty while none is known
	Guest bool     // the owner is none of the nodes that should have a copy
	Heirs []string // other nodes that should have a copy, live, and follow the log
}

// Even tells which of its shards a node should hand over, and to whom, so that the shards are spread evenly over the nodes
// that live, and each is at a node that should have it. settled is true when that is so; it may be false for lack of a copy.
// All nodes find the same hand-over, and its owner makes it. So one shard moves at a time, and none while a shard has no
// owner.
func Even(node string, alive []string, shards []Placed) (shard int, to string, settled bool) {
	owned := map[string]int{}
	for _, n := range alive {
		owned[n] = 0
	}
	for _, s := range shards {
		if _, lives := owned[s.Owner]; !lives {
			return 0, "", false
		}
		owned[s.Owner]++
	}
	for i, s := range shards {
		if !s.Guest || len(s.Heirs) == 0 {
			continue
		}
		if s.Owner != node {
			return 0, "", false
		}
		return i, slices.MinFunc(s.Heirs, func(a, b string) int { return cmp.Or(cmp.Compare(owned[a], owned[b]), cmp.Compare(a, b)) }), false
	}
	order := byShards(owned)
	for _, from := range order {
		i, to := lastHop(from, owned, shards)
		switch {
		case i < 0:
			continue
		case shards[i].Owner != node:
			return 0, "", false
		}
		return i, to, false
	}
	guest := slices.ContainsFunc(shards, func(s Placed) bool { return s.Guest })
	return 0, "", !guest && owned[order[0]]-owned[order[len(order)-1]] <= 1
}

// lastHop finds a way from a node to one that owns at least two shards less, on which each node hands a shard to the next
// one. It returns the last hand-over of the way, which comes first: so no node owns more meanwhile. -1 without a way.
func lastHop(from string, owned map[string]int, shards []Placed) (shard int, to string) {
	type hop struct {
		to    string
		shard int
	}
	reached := map[string]bool{from: true}
	for ways := []string{from}; len(ways) > 0; ways = ways[1:] {
		var hops []hop
		for i, s := range shards {
			if s.Owner != ways[0] {
				continue
			}
			for _, heir := range s.Heirs {
				if _, lives := owned[heir]; lives && !reached[heir] {
					hops = append(hops, hop{heir, i})
				}
			}
		}
		slices.SortFunc(hops, func(a, b hop) int {
			return cmp.Or(cmp.Compare(owned[a.to], owned[b.to]), cmp.Compare(a.to, b.to), cmp.Compare(a.shard, b.shard))
		})
		for _, h := range hops {
			if owned[h.to]+1 < owned[from] {
				return h.shard, h.to
			}
			if !reached[h.to] {
				reached[h.to] = true
				ways = append(ways, h.to)
			}
		}
	}
	return -1, ""
}

// byShards are the nodes, the one that owns most first.
func byShards(owned map[string]int) []string {
	return slices.SortedFunc(maps.Keys(owned), func(a, b string) int { return cmp.Or(cmp.Compare(owned[b], owned[a]), cmp.Compare(a, b)) })
}

// Holders are the nodes that should have a copy of a shard, of those that are known. Each node finds the same ones.
func Holders(shard, copies int, known []string) (out []string) {
	ring := slices.Compact(slices.Sorted(slices.Values(known)))
	for k := range min(copies, len(ring)) {
		out = append(out, ring[(shard+k)%len(ring)])
	}
	return out
}
