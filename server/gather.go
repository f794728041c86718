package server

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"edda"
	"edda/store"
)

// A list over shards merges the pages of all shards. Its cursor has a place for each shard, so the front keeps no state
// between two pages.

// gathering is a list that each shard has a part of.
type gathering struct {
	items  string // their member in the answer
	newest bool   // the greatest order first
	// head returns where an item belongs, and the place behind it.
	head func(item json.RawMessage) (order, place string, err error)
	// more are members that say again whether there is a next page.
	more string
	// union is a member whose lists are put together.
	union string
}

func gatherings() map[string]gathering {
	return map[string]gathering{
		"GET /v1/instances":   {items: "instances", head: keyed, union: "behind"},
		"GET /v1/held":        {items: "keys", head: keyed},
		"GET /v1/parked":      {items: "keys", head: keyed},
		"GET /v1/deadletters": {items: "dead_letters", head: died},
		"GET /v1/audit":       {items: "audits", newest: true, head: acted, more: "more"},
	}
}

func keyed(item json.RawMessage) (order, place string, err error) {
	var k struct{ Saga, Key string }
	err = json.Unmarshal(item, &k)
	return k.Saga + "\x00" + k.Key, cursor(edda.Key{Saga: k.Saga, Correlation: k.Key}), err
}

func died(item json.RawMessage) (order, place string, err error) {
	var d struct {
		ID   string
		Time time.Time
	}
	err = json.Unmarshal(item, &d)
	return sortable(d.Time) + d.ID, store.DeadPlace(edda.DeadLetter{ID: d.ID, Time: d.Time}), err
}

func acted(item json.RawMessage) (order, place string, err error) {
	var a struct {
		ID   string
		Time time.Time
	}
	err = json.Unmarshal(item, &a)
	return sortable(a.Time), a.ID, err
}

// sortable is a time whose text sorts like it.
func sortable(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

// shardPlace is where a list goes on in a shard.
type shardPlace struct {
	After string `json:"a,omitempty"`
	End   bool   `json:"e,omitempty"` // the shard has no more
}

// shardPage is a page of one shard.
type shardPage struct {
	items   []json.RawMessage
	orders  []string
	places  []string
	next    string
	union   []json.RawMessage
	problem *recorded // instead of a page
}

// defaultLimit and maxLimit are those of the lists.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// gather answers with one page of a list over all shards.
func (f *Front) gather(w http.ResponseWriter, r *http.Request, g gathering) {
	limit := defaultLimit
	if text := r.URL.Query().Get("limit"); text != "" {
		limit, _ = strconv.Atoi(text)
	}
	if limit < 1 || limit > maxLimit { // a shard's server says what is wrong
		f.pass(w, r, 0)
		return
	}
	places, err := f.places(r.URL.Query().Get("after"))
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, "after: it is no place in the list of all shards: begin the list anew, or name the shard that gave it")
		return
	}
	pages := make([]shardPage, len(places))
	var all sync.WaitGroup
	for i := range pages {
		if !places[i].End {
			all.Go(func() { pages[i] = f.page(r, i, places[i], g) })
		}
	}
	all.Wait()
	out := map[string]any{}
	var union []json.RawMessage
	for i := range pages {
		if a := pages[i].problem; a != nil {
			hint := ""
			if a.tooLarge {
				hint = "or ask for fewer with limit"
			}
			a.explain(i, hint)
			a.copyTo(w)
			return
		}
		union = append(union, pages[i].union...)
	}
	items := g.merge(pages, places, limit)
	out[g.items] = orEmpty(items)
	next := nextOf(places)
	if next != "" {
		out["next"] = next
		if g.more != "" {
			out[g.more] = true
		}
	}
	if len(union) > 0 {
		out[g.union] = union
	}
	answer(w, http.StatusOK, out)
}

// merge takes up to limit items of the pages in their order, and moves the places behind them. It ends early where a page
// has no more items and its shard has.
func (g gathering) merge(pages []shardPage, places []shardPlace, limit int) (items []json.RawMessage) {
	taken := make([]int, len(pages))
	for len(items) < limit {
		best := -1
		for i := range pages {
			if taken[i] == len(pages[i].items) {
				if pages[i].next != "" {
					best = -1
					break
				}
				continue
			}
			if best < 0 || g.before(pages[i].orders[taken[i]], pages[best].orders[taken[best]]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		items = append(items, pages[best].items[taken[best]])
		taken[best]++
	}
	for i := range pages {
		p := &places[i]
		switch n := taken[i]; {
		case p.End:
		case n == len(pages[i].items):
			*p = shardPlace{After: pages[i].next, End: pages[i].next == ""}
		case n > 0:
			*p = shardPlace{After: pages[i].places[n-1]}
		}
	}
	return items
}

func (g gathering) before(a, b string) bool {
	if g.newest {
		return cmp.Less(b, a)
	}
	return cmp.Less(a, b)
}

// page gets a page of a shard.
func (f *Front) page(r *http.Request, shard int, from shardPlace, g gathering) (p shardPage) {
	again := r.Clone(r.Context())
	q := again.URL.Query()
	q.Del("after")
	if from.After != "" {
		q.Set("after", from.After)
	}
	again.URL.RawQuery = q.Encode()
	a := f.ask(again, shard)
	if a.status != http.StatusOK {
		return shardPage{problem: a}
	}
	err := p.read(a.body.Bytes(), g)
	if err != nil {
		f.options.Log.Error("a page of a shard cannot be read: " + err.Error())
		a = &recorded{header: http.Header{}}
		problem(a, http.StatusInternalServerError, "a page cannot be read; the log of the server says why")
		return shardPage{problem: a}
	}
	return p
}

// read reads an answer of a shard.
func (p *shardPage) read(text []byte, g gathering) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for name, to := range map[string]any{g.items: &p.items, "next": &p.next, g.union: &p.union} {
		if members[name] == nil {
			continue
		}
		if err := json.Unmarshal(members[name], to); err != nil {
			return err
		}
	}
	for _, item := range p.items {
		order, place, err := g.head(item)
		if err != nil {
			return err
		}
		p.orders, p.places = append(p.orders, order), append(p.places, place)
	}
	return nil
}

// nextOf is the cursor of the next page; empty if no shard has more.
func nextOf(places []shardPlace) string {
	for _, p := range places {
		if !p.End {
			raw, _ := json.Marshal(places) // texts and numbers always marshal
			return base64.RawURLEncoding.EncodeToString(raw)
		}
	}
	return ""
}

// places decodes a cursor.
func (f *Front) places(text string) ([]shardPlace, error) {
	places := make([]shardPlace, len(f.shards))
	if text == "" {
		return places, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		places = nil
		err = json.Unmarshal(raw, &places)
	}
	if err == nil && len(places) != len(f.shards) {
		err = fmt.Errorf("a cursor of %d shards", len(places))
	}
	return places, err
}

// portions has one shard after the other do a portion of an act on many dead letters. The cursor begins with the shard.
func (f *Front) portions(w http.ResponseWriter, r *http.Request) {
	shard, after := 0, ""
	if text := r.URL.Query().Get("after"); text != "" {
		number, rest, _ := strings.Cut(text, ".")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= len(f.shards) {
			f.pass(w, r, 0) // which says what is wrong
			return
		}
		shard, after = n, rest
	}
	again := r.Clone(r.Context())
	q := again.URL.Query()
	q.Del("after")
	if after != "" {
		q.Set("after", after)
	}
	again.URL.RawQuery = q.Encode()
	var p LetterPortion
	if !f.decode(w, f.ask(again, shard), shard, "", &p) {
		return
	}
	switch {
	case p.Next != "":
		p.Next = fmt.Sprintf("%d.%s", shard, p.Next)
	case p.Stopped == "" && shard+1 < len(f.shards):
		p.Next = fmt.Sprintf("%d.", shard+1)
	}
	answer(w, http.StatusOK, p)
}
