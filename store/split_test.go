package store

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
)

// TestASplitStoreIsTwo: each row is in the half that has its key, what has no key is in both, and each half is sound and goes
// on. Halves can be split again.
func TestASplitStoreIsTwo(t *testing.T) {
	_, key := keysetFile(t)
	for name, sealing := range map[string]AEAD{"plain": nil, "sealed": key} {
		t.Run(name, func(t *testing.T) {
			o := Options{Seal: sealing, plain: true}
			db := ofTwo(t, o)
			for i := range 40 {
				k := orderKey(fmt.Sprint("order", i))
				db.commit(t, Change{Transitions: []edda.Transition{step(k, 1), step(k, 2)}})
			}
			db.commit(t, Change{Marks: []edda.Mark{{Stream: "S", Seq: 1, ID: "published"}}})
			db.check(t)
			before := byKey(t, db)
			halves := splitInto(t, db, "shop")
			for i, half := range halves {
				if want := (edda.Share{Cluster: "shop", Shard: edda.Shard{Index: i, Of: 2}}); half.Share() != want || half.ID() == db.ID() || !half.MadeOf(db.ID()) {
					t.Errorf("half %d has %v, id %s", i, half.Share(), half.ID())
				}
				half.check(t)
				checkIndex(t, half.DB)
			}
			parts := []map[string][]edda.Key{byKey(t, halves[0]), byKey(t, halves[1])}
			for space, all := range before {
				var got []edda.Key
				for i, part := range parts {
					for _, k := range part[space] {
						if !(edda.Shard{Index: i, Of: 2}).Has(k) {
							t.Errorf("%s: half %d has %s", space, i, k)
						}
					}
					got = append(got, part[space]...)
					if len(part[space]) == 0 && len(all) > 20 {
						t.Errorf("%s: half %d has nothing", space, i)
					}
				}
				less := func(a, b edda.Key) int { return strings.Compare(a.String(), b.String()) }
				slices.SortFunc(got, less)
				slices.SortFunc(all, less)
				same(t, space, got, all)
			}
			sum := map[format.CountKey]int{}
			for _, half := range halves {
				for k, n := range half.index.counts {
					sum[k] += n
				}
				same(t, "positions", must(half.Checkpoints()), must(db.Checkpoints()))
				same(t, "manifests", len(must(half.Manifests())), len(must(db.Manifests())))
				same(t, "marks, which need what was published", len(must(half.Marks())), 0)
			}
			if !maps.Equal(sum, db.index.counts) {
				t.Errorf("the halves count %v, and the store %v", sum, db.index.counts)
			}
			for i, half := range halves {
				for n := 0; ; n++ {
					if k := orderKey(fmt.Sprint("new", n)); (edda.Shard{Index: i, Of: 2}).Has(k) {
						half.commit(t, Change{Transitions: []edda.Transition{step(k, 1)}})
						break
					}
				}
				half.check(t)
			}
			for i, quarter := range splitInto(t, halves[1], "ignored") {
				if want := (edda.Share{Cluster: "shop", Shard: edda.Shard{Index: 1 + 2*i, Of: 4}}); quarter.Share() != want {
					t.Errorf("a quarter has %v, want %v", quarter.Share(), want)
				}
				quarter.check(t)
			}
		})
	}
}

func orderKey(correlation string) edda.Key {
	return edda.Key{Tenant: "acme", Saga: "order", Correlation: correlation}
}

// splitInto splits a store and opens the halves.
func splitInto(t *testing.T, db *opened, cluster string) [2]*opened {
	t.Helper()
	dir := t.TempDir()
	to := [2]string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	if err := db.Split(t.Context(), cluster, to, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Split(t.Context(), cluster, to, nil); err == nil {
		t.Error("a store is overwritten")
	}
	return [2]*opened{open(t, to[0], Options{Seal: db.options.Seal, plain: true}), open(t, to[1], Options{Seal: db.options.Seal, plain: true})}
}

// byKey lists the keys of the rows of each keyspace whose rows belong to a key.
func byKey(t *testing.T, db *opened) map[string][]edda.Key {
	t.Helper()
	out := map[string][]edda.Key{}
	add := func(space string, k edda.Key) { out[space] = append(out[space], k) }
	for _, in := range must(db.Instances(Query{Limit: 1000, Tenant: "acme"})) {
		add("instances", in.Key)
		history, _, err := db.HistoryFrom(in.Key, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for range history {
			add("history", in.Key)
		}
	}
	for _, row := range must(db.Outbox(ulid.ULID{}, 1000)) {
		add("outbox", row.Work.From)
	}
	for _, d := range must(db.DeadLetters("", 1000)) {
		add("letters", d.Key)
		if _, found, err := db.DeadLetter(d.ID); err != nil || !found {
			t.Errorf("letter %s is not found: %v", d.ID, err)
		}
	}
	for _, a := range must(db.Audits(1000)) {
		add("audits", a.Key)
	}
	for _, w := range must(db.HeldKeys("acme", "", edda.Key{}, 100)) {
		add("held", w.Key)
	}
	for _, w := range must(db.ParkedKeys("acme", "", edda.Key{}, 100)) {
		add("parked", w.Key)
	}
	return out
}

// TestASplitKeepsWhatIsOfNoInstance: a dead letter and acts whose keys are no instance's are in one of the halves, whatever
// shard the store is.
func TestASplitKeepsWhatIsOfNoInstance(t *testing.T) {
	for index := range 2 {
		db := ofTwo(t, Options{Share: edda.Share{Cluster: "shop", Shard: edda.Shard{Index: index, Of: 2}}, plain: true})
		tenant := edda.Key{Tenant: "acme"}
		db.commit(t, Change{Dead: []edda.DeadLetter{{ID: "spoiled", Reason: edda.DeadPoison, Key: tenant, Time: noon}}, Audits: []Audit{
			{Time: noon, By: "ada", Verb: "gc"}, {Time: noon, By: "ada", Verb: "send", Key: tenant},
			{Time: noon, By: "ada", Verb: "redrive", Key: edda.Key{Tenant: "acme", Saga: "order"}},
		}})
		letters, acts := 0, 0
		for _, half := range splitInto(t, db, "shop") {
			_, found, err := half.DeadLetter("spoiled")
			if err != nil {
				t.Fatal(err)
			}
			if found {
				letters++
			}
			for _, a := range must(half.Audits(1000)) {
				if a.By == "ada" {
					acts++
				}
			}
			half.check(t)
		}
		if letters != 1 || acts != 3 {
			t.Errorf("shard %d: %d letters and %d acts are left of 1 and 3", index, letters, acts)
		}
	}
}

// TestASplitCopiesTheReplayOfAnInstanceOnce, or both halves would list it. That of a saga is in both.
func TestASplitCopiesTheReplayOfAnInstanceOnce(t *testing.T) {
	db := ofTwo(t, Options{plain: true})
	replays := []Replay{{ID: "saga", Saga: "order", Ended: noon}, {ID: "part", Saga: "order", Ended: noon, Shards: 2}, {ID: "runs", Saga: "order"}}
	for i := range 20 {
		k := orderKey(fmt.Sprint("order", i))
		replays = append(replays, Replay{ID: k.Correlation, Tenant: k.Tenant, Saga: k.Saga, Correlation: k.Correlation, Ended: noon})
	}
	db.commit(t, Change{Replays: replays})
	halves := splitInto(t, db, "shop")
	for _, r := range replays {
		var in []int
		for i, half := range halves {
			if slices.ContainsFunc(must(half.Replays()), func(has Replay) bool { return has.ID == r.ID }) {
				in = append(in, i)
			}
		}
		want := []int{0, 1}
		if r.Correlation != "" {
			want = []int{0}
			if (edda.Shard{Index: 1, Of: 2}).Has(orderKey(r.Correlation)) {
				want = []int{1}
			}
		}
		if !slices.Equal(in, want) {
			t.Errorf("replay %s is in the halves %v, want %v", r.ID, in, want)
		}
	}
}
