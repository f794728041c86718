package server

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// DeployTimeout bounds a deployment over shards. One takes in a revision of [MaxDeployment] within writeTimeout.
const DeployTimeout = 3 * time.Minute

// takenByAll explains why a deployment that all shards have taken in fails all the same.
const takenByAll = "all shards have taken these files in, and it is not sure that all run them still: see edda cluster status"

// deploy has all shards judge the manifests before the first one takes them in: one of them may lack a secret. Each takes
// them in only beside the revision that it has judged them with, and in the end all must run them. So two deployments at once
// do not both succeed. All shards note one time: see [begun].
func (f *Front) deploy(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(DeployTimeout)) // a test may have no connection
	body, ok := whole(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	only := query.Get("check") == "true"
	query.Del("check")
	query.Del("on")
	ask := func(shard int, name, value string, after Deployed) *recorded {
		again, q := r.Clone(r.Context()), maps.Clone(query)
		q.Set(name, value)
		if after.Hash != "" { // an older version of Edda names none
			q.Set("on", after.On())
		}
		again.URL.RawQuery, again.Body = q.Encode(), io.NopCloser(bytes.NewReader(body))
		return f.ask(again, shard)
	}
	check := func(after []Deployed, hint string) (out []Deployed, ok bool) {
		out, answers := make([]Deployed, len(after)), make([]*recorded, len(after))
		var all sync.WaitGroup
		for i := range after {
			all.Go(func() { answers[i] = ask(i, "check", "true", after[i]) })
		}
		all.Wait()
		for i, a := range answers {
			if !f.decode(w, a, i, hint, &out[i]) {
				return nil, false
			}
		}
		return out, true
	}
	judged, ok := check(make([]Deployed, len(f.shards)), "")
	if !ok {
		return
	}
	if only {
		answer(w, http.StatusOK, together(judged))
		return
	}
	at := begun(judged)
	taken, hint := make([]Deployed, len(f.shards)), ""
	for i := range taken {
		if !f.decode(w, ask(i, "time", at.UTC().Format(time.RFC3339Nano), judged[i]), i, hint, &taken[i]) {
			return
		}
		hint = takenBefore
	}
	if _, ok := check(taken, takenByAll); ok { // another deployment may have come to the first shards meanwhile
		answer(w, http.StatusOK, together(taken))
	}
}

// begun is the time of a deployment that goes on, or else now. It goes on if the files came to a shard after all that the
// others run: files that are older are deployed anew.
func begun(judged []Deployed) (at time.Time) {
	for _, d := range judged {
		if d.Since.After(at) {
			at = d.Since
		}
	}
	for _, d := range judged {
		if d.Since.IsZero() && (d.Time.IsZero() || !d.Time.Before(at)) { // an older version of Edda says no time
			return time.Now()
		}
	}
	return at
}

// together is the answer of all shards. The revision is that of the first one, whose files a GET shows.
func together(shards []Deployed) Deployed {
	all := shards[0]
	for _, d := range shards[1:] {
		all.Changed = all.Changed || d.Changed
		for _, p := range d.Problems {
			if !slices.Contains(all.Problems, p) {
				all.Problems = append(all.Problems, p)
			}
		}
	}
	return all
}
