package cluster

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestShardsSpreadEvenly: from any owners, each node that moves what Even says ends with as many shards as the others, or
// one more. No shard moves without need.
func TestShardsSpreadEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, copies := rapid.IntRange(1, 7).Draw(t, "nodes"), rapid.IntRange(2, 8).Draw(t, "copies")
		var alive []string
		for i := range n {
			alive = append(alive, fmt.Sprint("n", i))
		}
		shards := make([]Placed, 1<<rapid.IntRange(0, 5).Draw(t, "shards"))
		count := map[string]int{}
		for i := range shards {
			holders := Holders(i, copies, alive)
			shards[i].Owner = rapid.SampledFrom(alive).Draw(t, "owner")
			shards[i].Guest = !slices.Contains(holders, shards[i].Owner)
			shards[i].Heirs = slices.DeleteFunc(holders, func(n string) bool { return n == shards[i].Owner })
			count[shards[i].Owner]++
		}
		moves := 0
		for {
			var movers []string
			settled := true
			for _, node := range alive {
				shard, to, done := Even(node, alive, shards)
				if settled = settled && done; to == "" {
					continue
				}
				movers = append(movers, node)
				if len(movers) > 1 {
					t.Fatalf("%v move at once", movers)
				}
				if shards[shard].Owner != node || !slices.Contains(shards[shard].Heirs, to) {
					t.Fatalf("%s moves shard %d of %s to %s", node, shard, shards[shard].Owner, to)
				}
				holders := Holders(shard, copies, alive)
				shards[shard].Owner, shards[shard].Guest = to, false
				shards[shard].Heirs = slices.DeleteFunc(holders, func(n string) bool { return n == to })
				count[node]--
				count[to]++
				moves++
				break
			}
			if settled != (len(movers) == 0) {
				t.Fatalf("settled is %v, and %v move", settled, movers)
			}
			if settled {
				break
			}
		}
		least, most := len(shards), 0
		for _, name := range alive {
			least, most = min(least, count[name]), max(most, count[name])
		}
		if most-least > 1 {
			t.Fatalf("the nodes own %v", count)
		}
		if moves > len(shards)*n {
			t.Fatalf("%d moves of %d shards", moves, len(shards))
		}
	})
}

func TestNothingMovesWhileAShardHasNoOwner(t *testing.T) {
	shards := []Placed{{Owner: "a", Heirs: []string{"b"}}, {Owner: "a", Heirs: []string{"b"}}, {Owner: "gone", Heirs: []string{"a", "b"}}}
	if _, to, settled := Even("a", []string{"a", "b"}, shards); to != "" || settled {
		t.Errorf("it moves to %q, settled %v", to, settled)
	}
}

// TestAShardWithoutAnHeirStays: the node that has no copy of it cannot own it, and others move in its place.
func TestAShardWithoutAnHeirStays(t *testing.T) {
	shards := []Placed{{Owner: "a"}, {Owner: "a", Heirs: []string{"b"}}}
	if shard, to, _ := Even("a", []string{"a", "b"}, shards); shard != 1 || to != "b" {
		t.Errorf("shard %d moves to %q", shard, to)
	}
	if _, to, settled := Even("a", []string{"a", "b"}, []Placed{{Owner: "a"}, {Owner: "a"}}); to != "" || settled {
		t.Errorf("it moves to %q, settled %v: b may have copies later", to, settled)
	}
}

// TestHoldersAreEven: each shard has its copies, and the nodes have as many as the others or one more for each copy.
func TestHoldersAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var known []string
		for i := range rapid.IntRange(1, 9).Draw(t, "nodes") {
			known = append(known, fmt.Sprint("n", i))
		}
		shards, copies := 1<<rapid.IntRange(0, 5).Draw(t, "shards"), rapid.IntRange(1, 9).Draw(t, "copies")
		count := map[string]int{}
		for i := range shards {
			holders := Holders(i, copies, append(slices.Clone(known), known[0]))
			if len(holders) != min(copies, len(known)) || len(slices.Compact(slices.Sorted(slices.Values(holders)))) != len(holders) {
				t.Fatalf("shard %d: %v", i, holders)
			}
			slices.Reverse(known)
			if again := Holders(i, copies, known); !slices.Equal(again, holders) {
				t.Fatalf("another node finds %v, not %v", again, holders)
			}
			for _, h := range holders {
				count[h]++
			}
		}
		for a, n := range count {
			for b, m := range count {
				if n-m > copies {
					t.Fatalf("%s has %d copies, %s has %d", a, n, b, m)
				}
			}
		}
	})
}
