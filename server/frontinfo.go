package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"edda/engine"
)

// info answers with what all shards run, and the sum of their counts. The store and the positions of one shard are in its own
// answer.
func (f *Front) info(w http.ResponseWriter, r *http.Request) {
	var all Info
	for i := range f.shards {
		var one Info
		if !f.decode(w, f.ask(r, i), i, "", &one) {
			return
		}
		if i == 0 {
			all = one
			all.StoreID, all.Positions, all.Consumers = "", []StreamPosition{}, []string{}
			continue
		}
		all.add(one)
	}
	answer(w, http.StatusOK, all)
}

// decode decodes the answer of a shard. If it is a problem, the front answers with it and what to know about the shards
// before it, and decode returns false.
func (f *Front) decode(w http.ResponseWriter, a *recorded, shard int, after string, into any) bool {
	if a.status != http.StatusOK {
		a.explain(shard, after)
		a.copyTo(w)
		return false
	}
	if err := json.Unmarshal(a.body.Bytes(), into); err != nil {
		f.options.Log.Error("an answer of a shard cannot be read: " + err.Error())
		problem(w, http.StatusInternalServerError, "an answer of a shard cannot be read; the log of the server says why")
		return false
	}
	return true
}

// add adds the counts of another shard.
func (all *Info) add(one Info) {
	for _, s := range one.Sagas {
		i := slices.IndexFunc(all.Sagas, func(a SagaInfo) bool { return a.Saga == s.Saga && a.Version == s.Version && a.Hash == s.Hash })
		if i < 0 { // instances of this shard alone run it
			all.Sagas = append(all.Sagas, s)
			continue
		}
		all.Sagas[i].Open += s.Open
	}
	for _, u := range one.Unheard {
		i := slices.IndexFunc(all.Unheard, func(a engine.Unheard) bool { return a.Type == u.Type })
		if i < 0 {
			all.Unheard = append(all.Unheard, u)
			continue
		}
		all.Unheard[i].Count += u.Count
		if u.Last.After(all.Unheard[i].Last) {
			all.Unheard[i].Last, all.Unheard[i].Stream = u.Last, u.Stream
		}
	}
	slices.SortStableFunc(all.Unheard, func(a, b engine.Unheard) int { return cmp.Compare(b.Count, a.Count) })
	all.Behind = append(all.Behind, one.Behind...)
	if one.Started.After(all.Started) {
		all.Started = one.Started
	}
}
