package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"edda/replay"
)

// replay begins a replay: of one instance in its shard, of a whole saga in each shard under one id.
func (f *Front) replay(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		problem(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	var o ReplayOrder
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := json.Unmarshal(body, &o); err != nil { // a shard says what is wrong
		f.pass(w, r, 0)
		return
	}
	if o.Key != "" {
		f.pass(w, r, f.shardOf(r, o.Saga, o.Key))
		return
	}
	f.replayAll(w, r, body, cmp.Or(o.ID, ulid.Make().String()), o.Newest)
}

// replayAll begins the parts of a replay, shard by shard, and answers with the whole. The shards before one that fails
// keep their parts, so the problem says how to go on.
func (f *Front) replayAll(w http.ResponseWriter, r *http.Request, order []byte, id string, newest bool) {
	body, err := withMembers(order, map[string]any{"id": id, "shards": len(f.shards)})
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	parts := make([]*replay.Report, len(f.shards))
	for i := range f.shards {
		again := r.Clone(r.Context())
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		a, after := f.ask(again, i), ""
		if i > 0 || a.status == http.StatusBadGateway {
			after = fmt.Sprintf("it may have begun in the shards up to here: repeat the call with the id %s: a shard that still knows it does not begin again", id)
		}
		if !f.decode(w, a, i, after, &parts[i]) {
			return
		}
		if i == 0 && newest && parts[0].Version > 0 { // the others take the same one, whatever is deployed meanwhile
			body, _ = withMembers(body, map[string]any{"newest": false, "version": parts[0].Version}) // it was one before
		}
	}
	answer(w, http.StatusOK, replay.Whole(parts))
}

// withMembers returns an object of JSON with members set, and all others as they are.
func withMembers(object []byte, set map[string]any) ([]byte, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	if members == nil { // null
		return nil, errors.New("want an object of JSON")
	}
	for name, value := range set {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		members[name] = raw
	}
	return json.Marshal(members)
}

// replays lists the replays of all shards, the newest first. That of a saga is one item, whatever shards have parts of it.
func (f *Front) replays(w http.ResponseWriter, r *http.Request) {
	all := ReplayList{Replays: []replay.Report{}}
	parts := map[string][]*replay.Report{} // of sagas, by id, then by shard
	var missing, silent *recorded
	silentShard := 0
	for i := range f.shards {
		a := f.ask(r, i)
		switch {
		case a.status == http.StatusNotFound: // this shard has no replay of that id
			missing = a
			continue
		case a.status != http.StatusOK && r.URL.Query().Get("id") != "": // another one may have it alone
			silent, silentShard = a, i
			continue
		}
		var one ReplayList
		if !f.decode(w, a, i, "", &one) {
			return
		}
		for _, p := range one.Replays {
			if p.Correlation != "" { // one shard has the instance
				all.Replays = append(all.Replays, p)
				continue
			}
			if parts[p.ID] == nil {
				parts[p.ID] = make([]*replay.Report, len(f.shards))
			}
			parts[p.ID][i] = &p
		}
	}
	found := len(all.Replays)
	for _, of := range parts {
		all.Replays = append(all.Replays, replay.Whole(of))
	}
	switch {
	case silent != nil && found == 0: // it has that replay, or a part of it
		silent.explain(silentShard, "")
		silent.copyTo(w)
		return
	case len(all.Replays) == 0 && missing != nil:
		missing.copyTo(w)
		return
	}
	slices.SortFunc(all.Replays, func(a, b replay.Report) int {
		return cmp.Or(b.Begun.Compare(a.Begun), strings.Compare(b.ID, a.ID))
	})
	answer(w, http.StatusOK, all)
}
