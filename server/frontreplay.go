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
	f.replayAll(w, r, body, cmp.Or(o.ID, ulid.Make().String()))
}

// replayAll begins the parts of a replay, shard by shard, and answers with the whole. The shards before one that fails
// keep their parts, so the problem says how to go on.
func (f *Front) replayAll(w http.ResponseWriter, r *http.Request, order []byte, id string) {
	body, err := withMembers(order, map[string]any{"id": id, "shards": len(f.shards)})
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	parts := make([]*replay.Report, len(f.shards))
	after := ""
	for i := range f.shards {
		again := r.Clone(r.Context())
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if !f.decode(w, f.ask(again, i), i, after, &parts[i]) {
			return
		}
		after = fmt.Sprintf("the shards before it replay: repeat the call with the id %s, which begins nothing twice", id)
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

// replays lists the replays of all shards, the newest first. A replay that has parts is one item.
func (f *Front) replays(w http.ResponseWriter, r *http.Request) {
	parts := map[string][]*replay.Report{} // by id, then by shard
	var missing *recorded
	for i := range f.shards {
		a := f.ask(r.Clone(r.Context()), i)
		if a.status == http.StatusNotFound { // this shard has no replay of that id
			missing = a
			continue
		}
		var one ReplayList
		if !f.decode(w, a, i, "", &one) {
			return
		}
		for _, p := range one.Replays {
			if parts[p.ID] == nil {
				parts[p.ID] = make([]*replay.Report, len(f.shards))
			}
			parts[p.ID][i] = &p
		}
	}
	if len(parts) == 0 && missing != nil {
		missing.copyTo(w)
		return
	}
	all := ReplayList{Replays: []replay.Report{}}
	for _, of := range parts {
		known := of[slices.IndexFunc(of, func(p *replay.Report) bool { return p != nil })]
		if known.Shards > 0 {
			*known = replay.Whole(of)
		}
		all.Replays = append(all.Replays, *known)
	}
	slices.SortFunc(all.Replays, func(a, b replay.Report) int {
		return cmp.Or(b.Begun.Compare(a.Begun), strings.Compare(b.ID, a.ID))
	})
	answer(w, http.StatusOK, all)
}
