package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"edda"
	"edda/engine"
	"edda/internal/httpserver"
	"edda/internal/testkit"
	"edda/replay"
	"edda/store"
)

// frontOf makes a front over handlers of shards.
func frontOf(t *testing.T, shards ...http.HandlerFunc) *Front {
	t.Helper()
	f := testkit.Value[*Front](t)(NewFront(Options{Addr: "127.0.0.1:0", NoTenancy: true}, len(shards)))
	for i, h := range shards {
		f.shards[i].now.Store(&hosted{Server: &Server{main: httpserver.New("", h, httpserver.Options{})}})
	}
	return f
}

// callFront makes a call at a front.
func callFront(f *Front, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+target, strings.NewReader(body))
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	return w
}

// naming answers with the number of the shard.
func naming(i int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d %s %s", i, r.Header.Get(ShardHeader), r.URL.Path)
	}
}

func TestACallFindsItsShard(t *testing.T) {
	f := frontOf(t, naming(0), naming(1), naming(2), naming(3))
	for i := range 50 {
		k := edda.Key{Saga: "order", Correlation: fmt.Sprintf("O %d/ä", i)}
		path := "/v1/instances/order/" + url.PathEscape(k.Correlation)
		want := slices.IndexFunc([]int{0, 1, 2, 3}, func(s int) bool { return edda.Shard{Index: s, Of: 4}.Has(k) })
		for _, call := range [][2]string{{"GET", path}, {"GET", path + "/history"}, {"POST", path + "/signal/go"}, {"POST", path + "/retry/ship"}} {
			if got := callFront(f, call[0], call[1], "").Body.String(); !strings.HasPrefix(got, fmt.Sprint(want, " ", want, " ")) {
				t.Errorf("%s %s: %s, want shard %d", call[0], call[1], got, want)
			}
		}
	}
	if w := callFront(f, "POST", "/admin/gc", ""); w.Code != 422 || w.Header().Get(ShardsHeader) != "4" {
		t.Errorf("a call that must name a shard: %d %s", w.Code, w.Body)
	}
	if got := callFront(f, "POST", "/admin/gc", "", ShardHeader+": 2").Body.String(); got != "2 2 /admin/gc" {
		t.Errorf("a call that names its shard: %s", got)
	}
	if got := callFront(f, "GET", "/cluster", "", ShardHeader+": 2").Body.String(); got != "2 2 /cluster" {
		t.Errorf("the status of one shard: %s", got)
	}
	for _, wrong := range []string{"4", "-1", "x"} {
		if w := callFront(f, "GET", "/v1/instances", "", ShardHeader+": "+wrong); w.Code != 422 || !strings.Contains(w.Body.String(), "the shards 0 to 3") {
			t.Errorf("shard %s: %d %s", wrong, w.Code, w.Body)
		}
	}
	for _, call := range []string{"/admin/gc", "/admin/backup", "/admin/doctor", "/admin/compact", "/v1/backup", "/cluster/move"} {
		if w := callFront(f, "POST", call, ""); w.Code != 422 || !strings.Contains(w.Body.String(), "--shard") {
			t.Errorf("%s without a shard: %d %s", call, w.Code, w.Body)
		}
	}
	f.shards[3].now.Store(nil)
	if w := callFront(f, "GET", "/docs", "", ShardHeader+": 3"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a shard that is about to start: %d %s", w.Code, w.Body)
	}
}

// TestCountsAreThoseOfAllShards: what the shards run is the same, and what they have is added.
func TestCountsAreThoseOfAllShards(t *testing.T) {
	info := func(open int, unheard ...engine.Unheard) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, Info{StoreID: "S", Sagas: []SagaInfo{{Saga: "order", Version: 1, Open: open}}, Effects: []EffectInfo{{Effect: "pay"}}, Unheard: unheard})
		}
	}
	old := func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, Info{Sagas: []SagaInfo{{Saga: "order", Version: 1, Open: 4}, {Saga: "order", Version: 0, Open: 1}}})
	}
	f := frontOf(t, info(2, engine.Unheard{Type: "a", Count: 1}), info(3, engine.Unheard{Type: "a", Count: 2}, engine.Unheard{Type: "b", Count: 7}), old)
	w := callFront(f, "GET", "/info", "")
	var got Info
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if len(got.Sagas) != 2 || got.Sagas[0].Open != 9 || len(got.Effects) != 1 || got.StoreID != "" {
		t.Errorf("%+v", got)
	}
	if len(got.Unheard) != 2 || got.Unheard[0].Type != "b" || got.Unheard[1].Count != 3 {
		t.Errorf("%+v", got.Unheard)
	}
}

// TestReplaysOfOneShard are listed together; one is asked where it is, and one of an instance begins in its shard.
func TestReplaysOfOneShard(t *testing.T) {
	reports := func(i int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			id := fmt.Sprint("R", i)
			switch q := r.URL.Query().Get("id"); {
			case r.Method == http.MethodPost:
				body, _ := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%d %s", i, body)
			case q != "" && q != id:
				problem(w, 404, "no replay")
			default:
				one := replay.Report{Replay: store.Replay{ID: id, Begun: time.Unix(int64(i), 0).UTC()}}
				answer(w, 200, ReplayList{Replays: []replay.Report{one}})
			}
		}
	}
	f := frontOf(t, reports(0), reports(1), reports(2), reports(3))
	ids := func(target string) (out []string) {
		var list ReplayList
		if err := json.Unmarshal(callFront(f, "GET", target, "").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Replays {
			out = append(out, r.ID)
		}
		return out
	}
	if got := ids("/admin/replay"); !slices.Equal(got, []string{"R3", "R2", "R1", "R0"}) {
		t.Errorf("all: %v", got)
	}
	if got := ids("/admin/replay?id=R2"); !slices.Equal(got, []string{"R2"}) {
		t.Errorf("one: %v", got)
	}
	if w := callFront(f, "GET", "/admin/replay?id=R9", ""); w.Code != 404 {
		t.Errorf("none: %d", w.Code)
	}
	want := slices.IndexFunc([]int{0, 1, 2, 3}, func(s int) bool { return edda.Shard{Index: s, Of: 4}.Has(edda.Key{Saga: "order", Correlation: "K7"}) })
	order := `{"saga":"order","key":"K7"}`
	if got := callFront(f, "POST", "/admin/replay", order).Body.String(); got != fmt.Sprint(want, " ", order) {
		t.Errorf("of an instance: %s, want shard %d", got, want)
	}
}

// replayer is a shard that begins and lists replays.
type replayer struct {
	orders []string
	begun  []replay.Report
	down   bool
}

func (p *replayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := ReplayList{Replays: p.begun}
	if id := r.URL.Query().Get("id"); id != "" {
		list.Replays = slices.DeleteFunc(slices.Clone(p.begun), func(r replay.Report) bool { return r.ID != id })
	}
	switch {
	case p.down:
		unavailable(w, "nobody owns it")
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		p.orders = append(p.orders, string(body))
		var o ReplayOrder
		if err := json.Unmarshal(body, &o); err != nil {
			problem(w, 422, err.Error())
			return
		}
		if o.Newest {
			o.Version = 7
		}
		one := replay.Report{Replay: store.Replay{ID: o.ID, Saga: o.Saga, State: replay.StateDone, Shards: o.Shards, Version: o.Version}, DryRun: o.DryRun, Progress: replay.Summary{Same: 2}}
		p.begun = append(p.begun, one)
		answer(w, 200, one)
	case len(list.Replays) == 0 && r.URL.RawQuery != "":
		problem(w, 404, "no replay")
	default:
		answer(w, 200, list)
	}
}

// TestAReplayOfASagaIsOneOverAllShards: it has one id, which is the caller's if it names one.
func TestAReplayOfASagaIsOneOverAllShards(t *testing.T) {
	parts := []*replayer{{}, {}}
	f := frontOf(t, parts[0].ServeHTTP, parts[1].ServeHTTP)
	begin := func(order string) replay.Report {
		t.Helper()
		w := callFront(f, "POST", "/admin/replay", order)
		var r replay.Report
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		return r
	}
	first := begin(`{"saga":"order","from_seq":9007199254740993,"emit":"new","unknown":1}`)
	if first.Progress.Same != 4 || first.Shards != 2 || first.State != replay.StateDone {
		t.Errorf("%+v", first)
	}
	for i, p := range parts {
		for _, member := range []string{`"id":"` + first.ID + `"`, `"from_seq":9007199254740993`, `"emit":"new"`, `"unknown":1`, `"shards":2`} {
			if !strings.Contains(p.orders[0], member) {
				t.Errorf("shard %d got %s, which lacks %s", i, p.orders[0], member)
			}
		}
	}
	if named := begin(`{"saga":"order","id":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}`); named.ID != "01ARZ3NDEKTSV4RRFFQ69G5FAV" {
		t.Errorf("%+v", named)
	}
	for target, n := range map[string]int{"/admin/replay": 2, "/admin/replay?id=" + first.ID: 1} {
		var list ReplayList
		if err := json.Unmarshal(callFront(f, "GET", target, "").Body.Bytes(), &list); err != nil || len(list.Replays) != n || list.Replays[0].Progress.Same != 4 {
			t.Errorf("%s: %+v, %v", target, list, err)
		}
	}
	for order, code := range map[string]int{`{`: 422, `[]`: 422, `null`: 422} {
		if w := callFront(f, "POST", "/admin/replay", order); w.Code != code {
			t.Errorf("%s: %d %s", order, w.Code, w.Body)
		}
	}
}

// TestAllShardsReplayWithTheSameVersion: another one may be deployed between two of them.
func TestAllShardsReplayWithTheSameVersion(t *testing.T) {
	parts := []*replayer{{}, {}}
	if w := callFront(frontOf(t, parts[0].ServeHTTP, parts[1].ServeHTTP), "POST", "/admin/replay", `{"saga":"order","newest":true}`); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(parts[0].orders[0], `"newest":true`) || !strings.Contains(parts[1].orders[0], `"newest":false`) || !strings.Contains(parts[1].orders[0], `"version":7`) {
		t.Errorf("%s, then %s", parts[0].orders, parts[1].orders)
	}
}

// TestAReplayOfOneShardIsShownWithoutTheOthers: each of them may have no owner, and none may hide it.
func TestAReplayOfOneShardIsShownWithoutTheOthers(t *testing.T) {
	one := replay.Report{Replay: store.Replay{ID: "R", Correlation: "1", State: replay.StateDone, Begun: time.Unix(1, 0)}}
	two := one
	two.Saga, two.Begun = "other", time.Unix(2, 0)
	f := frontOf(t, (&replayer{down: true}).ServeHTTP, (&replayer{begun: []replay.Report{one}}).ServeHTTP, (&replayer{begun: []replay.Report{two}}).ServeHTTP)
	var list ReplayList
	if err := json.Unmarshal(callFront(f, "GET", "/admin/replay?id=R", "").Body.Bytes(), &list); err != nil || len(list.Replays) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if w := callFront(f, "GET", "/admin/replay?id=other", ""); w.Code != 503 {
		t.Errorf("the silent shard may have it: %d %s", w.Code, w.Body)
	}
}

// TestAReplayIsListedOnceAfterASplit: also while its halves run, and not as done while a half is not known.
func TestAReplayIsListedOnceAfterASplit(t *testing.T) {
	part := func(shards int, state string, ended int64) *replayer {
		return &replayer{begun: []replay.Report{{Replay: store.Replay{ID: "R", State: state, Shards: shards, Ended: time.Unix(ended, 0)}, Progress: replay.Summary{Same: 5}}}}
	}
	for _, c := range []struct {
		parts []*replayer
		state string
		same  int
	}{
		{[]*replayer{part(2, replay.StateDone, 1), part(2, replay.StateDone, 2), part(2, replay.StateDone, 1), part(2, replay.StateDone, 2)}, replay.StateDone, 10},
		{[]*replayer{part(2, replay.StateDone, 1), part(2, replay.StateDone, 2), part(2, replay.StateDone, 3), part(2, replay.StateFailed, 4)}, replay.StateFailed, 20},
		{[]*replayer{part(0, replay.StateDone, 1), part(0, replay.StateFailed, 2)}, replay.StateFailed, 10},
	} {
		var shards []http.HandlerFunc
		for _, p := range c.parts {
			shards = append(shards, p.ServeHTTP)
		}
		var list ReplayList
		f := frontOf(t, shards...)
		body := callFront(f, "GET", "/admin/replay", "").Body.Bytes()
		if err := json.Unmarshal(body, &list); err != nil || len(list.Replays) != 1 || list.Replays[0].State != c.state || list.Replays[0].Progress.Same != c.same {
			t.Errorf("%s, %v", body, err)
		}
		c.parts[1].down = true
		if w := callFront(f, "GET", "/admin/replay?id=R", ""); w.Code != 503 {
			t.Errorf("a shard is silent: %d %s", w.Code, w.Body)
		}
	}
}

// TestAReplayThatBeganInSomeShardsGoesOnInTheOthers: the problem names the id with which the call is repeated.
func TestAReplayThatBeganInSomeShardsGoesOnInTheOthers(t *testing.T) {
	parts := []*replayer{{}, {down: true}}
	f := frontOf(t, parts[0].ServeHTTP, parts[1].ServeHTTP)
	w := callFront(f, "POST", "/admin/replay", `{"saga":"order"}`)
	id := parts[0].begun[0].ID
	if text := w.Body.String(); w.Code != 503 || !strings.Contains(text, id) || !strings.Contains(text, "shard 1: ") || !strings.Contains(text, "repeat") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := callFront(f, "GET", "/admin/replay", ""); w.Code != 503 {
		t.Errorf("a list that lacks a shard: %d %s", w.Code, w.Body)
	}
	parts[1].down = false
	if w := callFront(f, "GET", "/admin/replay?id="+id, ""); w.Code != 200 || !strings.Contains(w.Body.String(), "shard 1 does not know") {
		t.Errorf("half a replay: %d %s", w.Code, w.Body)
	}
	parts[0].down, parts[1].down = true, false
	if w := callFront(f, "POST", "/admin/replay", `{"saga":"order"}`); w.Code != 503 || strings.Contains(w.Body.String(), "repeat the call with") {
		t.Errorf("nothing has begun: %d %s", w.Code, w.Body)
	}
}

// part is a shard's part of a list.
type part struct {
	items   []json.RawMessage
	members string
	head    func(json.RawMessage) (string, string, error)
	empty   int // pages without items that come first
}

func (p *part) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	at := 0
	switch after := q.Get("after"); {
	case after == "":
		if p.empty > 0 {
			answer(w, 200, map[string]any{p.members: []int{}, "next": "e1"})
			return
		}
	case strings.HasPrefix(after, "e"):
		if n, _ := strconv.Atoi(after[1:]); n < p.empty {
			answer(w, 200, map[string]any{p.members: []int{}, "next": fmt.Sprint("e", n+1)})
			return
		}
	default:
		at = 1 + slices.IndexFunc(p.items, func(item json.RawMessage) bool {
			_, place, _ := p.head(item)
			return place == after
		})
	}
	end := min(at+limit, len(p.items))
	out := map[string]any{p.members: orEmpty(p.items[at:end])}
	if end < len(p.items) {
		_, out["next"], _ = p.head(p.items[end-1])
	}
	answer(w, 200, out)
}

// TestAListOverShardsIsWhole: pages of any size have each item once, in the order of the list.
func TestAListOverShardsIsWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for route, g := range gatherings() {
		_, path, _ := strings.Cut(route, " ")
		for range 40 {
			shards := make([]*part, 1<<random.IntN(3))
			handlers := make([]http.HandlerFunc, len(shards))
			for i := range shards {
				shards[i] = &part{members: g.items, head: g.head, empty: random.IntN(3) % 2}
				handlers[i] = shards[i].ServeHTTP
			}
			var all []string
			for i := range random.IntN(60) {
				at := time.Unix(int64(random.IntN(20)), int64(random.IntN(3))*1e6).UTC()
				item := fmt.Sprintf(`{"saga":"s%d","key":"k%02d","id":"D%02d","time":%q}`, random.IntN(2), i, i, at.Format(time.RFC3339Nano))
				if path == "/v1/deadletters" {
					item = fmt.Sprintf(`{"id":"D%02d","time":%q,"key":{"saga":"s"}}`, i, at.Format(time.RFC3339Nano))
				}
				s := shards[random.IntN(len(shards))]
				s.items = append(s.items, json.RawMessage(item))
				all = append(all, item)
			}
			order := func(a, b json.RawMessage) int {
				x, _, _ := g.head(a)
				y, _, _ := g.head(b)
				if g.newest {
					return strings.Compare(y, x)
				}
				return strings.Compare(x, y)
			}
			for _, s := range shards {
				slices.SortStableFunc(s.items, order)
			}
			f := frontOf(t, handlers...)
			var got []string
			after := ""
			for pages := 0; ; pages++ {
				q := url.Values{"limit": {fmt.Sprint(1 + random.IntN(8))}}
				if after != "" {
					q.Set("after", after)
				}
				w := callFront(f, "GET", path+"?"+q.Encode(), "")
				var page map[string]json.RawMessage
				if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 || pages > 200 {
					t.Fatalf("%s: page %d: %d %s", path, pages, w.Code, w.Body)
				}
				var items []json.RawMessage
				after = ""
				_ = json.Unmarshal(page[g.items], &items)
				_ = json.Unmarshal(page["next"], &after)
				for _, item := range items {
					got = append(got, string(item))
				}
				if g.more != "" && (string(page[g.more]) == "true") != (after != "") {
					t.Errorf("%s: %s is %s, and next %q", path, g.more, page[g.more], after)
				}
				if after == "" {
					break
				}
			}
			if !slices.IsSortedFunc(got, func(a, b string) int { return order(json.RawMessage(a), json.RawMessage(b)) }) {
				t.Fatalf("%s: the items are out of order: %v", path, got)
			}
			slices.Sort(got)
			slices.Sort(all)
			if !slices.Equal(got, all) {
				t.Fatalf("%s: got %v, want %v", path, got, all)
			}
		}
	}
}

// TestActsThatComeBetweenTwoPagesRepeatNone: those on the pages before keep their places.
func TestActsThatComeBetweenTwoPagesRepeatNone(t *testing.T) {
	act := func(shard, second int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"id":"s%d-%d","time":%q}`, shard, second, time.Unix(int64(second), 0).UTC().Format(time.RFC3339Nano)))
	}
	shards := []*part{{members: "audits", head: acted}, {members: "audits", head: acted}}
	for second := 10; second > 0; second-- {
		shards[second%2].items = append(shards[second%2].items, act(second%2, second))
	}
	f := frontOf(t, shards[0].ServeHTTP, shards[1].ServeHTTP)
	var got []string
	for after, page := "", 1; page == 1 || after != ""; page++ {
		var list AuditList
		if err := json.Unmarshal(callFront(f, "GET", "/v1/audit?limit=3&after="+after, "").Body.Bytes(), &list); err != nil || page > 10 {
			t.Fatalf("page %d: %v", page, err)
		}
		for _, a := range list.Audits {
			got = append(got, a.ID)
		}
		after = list.Next
		for i, s := range shards {
			s.items = slices.Insert(s.items, 0, act(i, 100*page+i))
		}
	}
	if want := []string{"s0-10", "s1-9", "s0-8", "s1-7", "s0-6", "s1-5", "s0-4", "s1-3", "s0-2", "s1-1"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestADrainIsOfTheWholeNode: of owned shards first, and the progress is that of all.
func TestADrainIsOfTheWholeNode(t *testing.T) {
	var asked []int
	drains := func(i int, d Drain) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			asked = append(asked, i)
			answer(w, 200, d)
		}
	}
	f := frontOf(t, drains(0, Drain{Draining: true}),
		drains(1, Drain{Draining: true, Stage: "engine", Waiting: []string{"effects"}, Stopped: []string{"source"}, Outbox: 3}),
		drains(2, Drain{Draining: true, Outbox: 4}), drains(3, Drain{Draining: true}))
	f.shards[0].now.Load().forward = &forwarder{}
	f.shards[3].now.Store(nil) // it has ended
	w := callFront(f, "POST", "/admin/drain", "", ShardHeader+": 2")
	want := `{"draining":true,"stage":"engine","stopped":["shard 1: source"],"waiting":["shard 1: effects"],"outbox":7}`
	if w.Code != 200 || strings.TrimSpace(w.Body.String()) != want || !slices.Equal(asked, []int{1, 2, 0}) {
		t.Errorf("%d %s, asked %v", w.Code, w.Body, asked)
	}
	for i := range f.shards {
		f.shards[i].now.Store(nil)
	}
	if w := callFront(f, "POST", "/admin/drain", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "about to start") {
		t.Errorf("before any server: %d %s", w.Code, w.Body)
	}
	f = frontOf(t, drains(0, Drain{}), func(w http.ResponseWriter, _ *http.Request) { problem(w, 403, "not you") })
	if w := callFront(f, "POST", "/admin/drain", ""); w.Code != 403 || !strings.Contains(w.Body.String(), "shard 1: not you") {
		t.Errorf("refused: %d %s", w.Code, w.Body)
	}
}

func TestAPageThatAShardRefusesIsRefused(t *testing.T) {
	fine := (&part{members: "instances", head: keyed}).ServeHTTP
	f := frontOf(t, fine, func(w http.ResponseWriter, _ *http.Request) { unavailable(w, "no owner") })
	if w := callFront(f, "GET", "/v1/instances", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "shard 1: no owner") || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f = frontOf(t, fine, func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusTemporaryRedirect, "ask n2") })
	if w := callFront(f, "GET", "/v1/instances", ""); w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "edda-shard") {
		t.Errorf("a caller by certificate: %d %s", w.Code, w.Body)
	}
}

// TestAnEventGoesToAShardWithAnOwner: to one of this node, if it owns one.
func TestAnEventGoesToAShardWithAnOwner(t *testing.T) {
	f := frontOf(t, naming(0), naming(1), naming(2))
	owned := map[int]bool{}
	for i := range f.shards {
		f.shards[i].now.Load().forward = &forwarder{owner: func() (string, bool) { return "http://n2", owned[i] }}
	}
	event := func() string { return strings.Fields(callFront(f, "POST", "/v1/events", "{}").Body.String())[0] }
	if got := event(); got != "0" {
		t.Errorf("without any owner: shard %s", got)
	}
	if owned[1] = true; event() != "1" {
		t.Errorf("not to the shard that has an owner")
	}
	if f.shards[2].now.Load().forward = nil; event() != "2" {
		t.Errorf("not to the shard that this node owns")
	}
}

func TestADeadLetterIsFound(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	has := func(i int, id string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			calls = append(calls, fmt.Sprintf("%d %s %s %s", i, r.Method, r.URL, body))
			mu.Unlock()
			if !strings.Contains(r.URL.Path, id) {
				problem(w, 404, "no dead letter")
			}
		}
	}
	f := frontOf(t, has(0, "D0"), has(1, "D1"))
	if w := callFront(f, "POST", "/v1/deadletters/D1/redrive?x=1", `{"why":"w"}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	want := []string{"0 GET http://127.0.0.1/v1/deadletters/D1 ", "1 GET http://127.0.0.1/v1/deadletters/D1 ", `1 POST http://127.0.0.1/v1/deadletters/D1/redrive?x=1 {"why":"w"}`}
	if !slices.Equal(calls, want) {
		t.Errorf("calls: %q", calls)
	}
	if w := callFront(f, "GET", "/v1/deadletters/D7", ""); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestPortionsGoFromShardToShard: a command on many dead letters has each shard finish its own.
func TestPortionsGoFromShardToShard(t *testing.T) {
	left := []int{0, 3, 0, 2}
	var handlers []http.HandlerFunc
	for i := range left {
		handlers = append(handlers, func(w http.ResponseWriter, r *http.Request) {
			if want := map[bool]string{true: "", false: fmt.Sprint("at", left[i])}[r.URL.Query().Get("after") == ""]; r.URL.Query().Get("after") != want {
				problem(w, 422, "after")
				return
			}
			p := LetterPortion{Failures: []LetterFailure{}}
			if left[i] > 0 {
				left[i]--
				p.Done = 1
			}
			if left[i] > 0 {
				p.Next = fmt.Sprint("at", left[i])
			}
			answer(w, 200, p)
		})
	}
	f := frontOf(t, handlers...)
	done, after := 0, ""
	for calls := 0; calls < 20; calls++ {
		w := callFront(f, "POST", "/v1/deadletters/drop?after="+after, "")
		var p LetterPortion
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		done += p.Done
		if after = p.Next; after == "" {
			break
		}
	}
	if done != 5 || after != "" || slices.Max(left) > 0 {
		t.Errorf("%d are done, %v are left", done, left)
	}
}

// TestAnActOnEachShardStopsAtTheFirstFailure: the answer says where, and that the call may be repeated.
func TestAnActOnEachShardStopsAtTheFirstFailure(t *testing.T) {
	var bodies []string
	takes := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		answer(w, 200, map[string]int{"revision": 2})
	}
	refuses := func(w http.ResponseWriter, _ *http.Request) { problem(w, 422, "order.yaml:1: no") }
	if w := callFront(frontOf(t, takes, takes), "POST", "/admin/reload", "files"); w.Code != 200 || !slices.Equal(bodies, []string{"files", "files"}) {
		t.Errorf("%d %s %q", w.Code, w.Body, bodies)
	}
	bodies = nil
	w := callFront(frontOf(t, takes, refuses, takes), "POST", "/admin/reload", "files")
	if w.Code != 422 || len(bodies) != 1 || !strings.Contains(w.Body.String(), "shard 1: order.yaml:1: no") || !strings.Contains(w.Body.String(), "repeat it") {
		t.Errorf("%d %s %q", w.Code, w.Body, bodies)
	}
}

// TestAServerLeavesTheFrontWhenItsCallsHaveEnded: like the end of a server with an address of its own.
func TestAServerLeavesTheFrontWhenItsCallsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := make(chan struct{}), make(chan struct{})
		f := testkit.Value[*Front](t)(NewFront(Options{Addr: "127.0.0.1:0", NoTenancy: true}, 1))
		s := &Server{main: httpserver.New("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-release
			fmt.Fprint(w, "whole")
		}), httpserver.Options{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = f.shards[0].run(ctx, s)
		}()
		synctest.Wait()
		answered := make(chan string, 1)
		go func() { answered <- callFront(f, "GET", "/docs", "").Body.String() }()
		<-begun
		stop()
		synctest.Wait()
		if w := callFront(f, "GET", "/docs", ""); w.Code != 503 {
			t.Errorf("a call after the end: %d", w.Code)
		}
		select {
		case <-ended:
			t.Error("it ended before its call")
		default:
		}
		released := time.Now()
		close(release)
		<-ended
		if took := time.Since(released); took > 0 {
			t.Errorf("it ended %s after its last call", took)
		}
		if got := <-answered; got != "whole" {
			t.Errorf("the call in flight: %q", got)
		}
	})
}

// TestAServerDoesNotWaitLongForACall that does not end.
func TestAServerDoesNotWaitLongForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := testkit.Value[*Front](t)(NewFront(Options{Addr: "127.0.0.1:0", NoTenancy: true}, 1))
		s := &Server{main: httpserver.New("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), httpserver.Options{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = f.shards[0].run(ctx, s)
		}()
		synctest.Wait()
		go callFront(f, "GET", "/docs", "")
		synctest.Wait()
		began := time.Now()
		stop()
		<-ended
		if took := time.Since(began); took != shutdownWait {
			t.Errorf("it waited %s", took)
		}
		close(release)
	})
}

// TestAFrontShowsTheStateOfAllShards in the probes and the metrics.
func TestAFrontShowsTheStateOfAllShards(t *testing.T) {
	own, part := prometheus.NewRegistry(), prometheus.NewRegistry()
	count := func(r *prometheus.Registry, name string, n float64) {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "h"})
		c.Add(n)
		r.MustRegister(c)
	}
	count(own, "node_total", 1)
	count(part, "node_total", 9)
	count(part, "edda_events_total", 5)
	f := testkit.Value[*Front](t)(NewFront(Options{Addr: "127.0.0.1:0", Metrics: own, NoTenancy: true}, 2))
	ready := func() *httptest.ResponseRecorder { return callFront(f, "GET", "/ready", "") }
	if w := ready(); w.Code != 503 || !strings.Contains(w.Body.String(), "is about to start") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wrong := ""
	for i := range f.shards {
		s := &Server{options: Options{Metrics: part}, status: func(context.Context) ProcessStatus {
			return ProcessStatus{NotReady: wrong, Components: map[string]ComponentStatus{"copy": {State: "up"}}}
		}}
		f.shards[i].now.Store(&hosted{Server: s})
	}
	if w := ready(); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wrong = "it lags"
	if w := ready(); w.Code != 503 || !strings.Contains(w.Body.String(), "shard 1: it lags") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := callFront(f, "GET", "/health", ""); !strings.Contains(w.Body.String(), `"shard 0: copy"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	got := callFront(f, "GET", "/metrics", "").Body.String()
	for _, line := range []string{"\nnode_total 1\n", "\nedda_events_total{shard=\"0\"} 5\n", "\nedda_events_total{shard=\"1\"} 5\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in %s", line, got)
		}
	}
	if strings.Contains(got, "9") {
		t.Errorf("the metrics of the node come twice: %s", got)
	}
	failing := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("no") })
	f.shards[1].now.Store(&hosted{Server: &Server{options: Options{Metrics: failing}}})
	if _, err := (shardMetrics{own, f}).Gather(); err == nil {
		t.Error("an error of a shard is lost")
	}
}

// TestTheStateOfAClusterOverShards: a node has the shards that it owns, and the problem of one is that of all.
func TestTheStateOfAClusterOverShards(t *testing.T) {
	f := frontOf(t, naming(0), naming(1), naming(2))
	for i, owner := range []string{"n1", "n2", "n1"} {
		s := ClusterStatus{Name: "shop", Node: "n1", Owner: owner, Level: 1, Nodes: []ClusterNode{{Node: "n1", Role: NodeStandby, State: NodeAlive}, {Node: "n2", Role: NodeJoining, State: NodeAlive}}}
		if i == 2 {
			s.Problem = "no copy"
		}
		f.shards[i].now.Store(&hosted{Server: &Server{options: Options{Cluster: knownCluster{s: s}}}})
	}
	got := f.clusterOfAll(t.Context())
	if len(got.Nodes) != 2 || !slices.Equal(got.Nodes[0].Owns, []int{0, 2}) || !slices.Equal(got.Nodes[1].Owns, []int{1}) || got.Nodes[0].Role != NodeOwner {
		t.Errorf("nodes %+v", got.Nodes)
	}
	if len(got.Shards) != 3 || got.Shards[1].Owner != "n2" || got.Problem != "shard 2: no copy" || got.Name != "shop" || got.Level != 1 {
		t.Errorf("%+v", got)
	}
}

// knownCluster is a cluster with a state.
type knownCluster struct {
	Cluster
	s ClusterStatus
}

func (c knownCluster) Status(context.Context) ClusterStatus { return c.s }

// TestAnAnswerThatBreaksOffIsOneOfTheFront: a proxy panics where an owner breaks off, in a goroutine of the front.
func TestAnAnswerThatBreaksOffIsOneOfTheFront(t *testing.T) {
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	f := frontOf(t, broken, naming(1))
	for call, want := range map[[2]string]int{
		{"GET", "/v1/instances"}:          http.StatusServiceUnavailable,
		{"GET", "/v1/deadletters/D1"}:     http.StatusOK, // the other shard has it
		{"GET", "/info"}:                  http.StatusServiceUnavailable,
		{"POST", "/cluster/finalize"}:     http.StatusBadGateway,
		{"POST", "/cluster/forget/n3"}:    http.StatusBadGateway,
		{"POST", "/cluster/manifests"}:    http.StatusBadGateway,
		{"GET", "/v1/audit?limit=10"}:     http.StatusServiceUnavailable,
		{"GET", "/v1/held?limit=10"}:      http.StatusServiceUnavailable,
		{"GET", "/v1/parked?limit=10"}:    http.StatusServiceUnavailable,
		{"GET", "/v1/deadletters?a=b"}:    http.StatusServiceUnavailable,
		{"HEAD", "/v1/instances?limit=1"}: http.StatusServiceUnavailable,
	} {
		if got := callFront(f, call[0], call[1], "").Code; got != want {
			t.Errorf("%v: %d, want %d", call, got, want)
		}
	}
}

func TestACursorOfOneShardIsRefused(t *testing.T) {
	f := frontOf(t, naming(0), naming(1))
	if got := callFront(f, "GET", "/v1/instances?after=WyJvcmRlciIsIk8xIl0", ""); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "begin the list anew") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func TestADeadLetterWithASlashIsFound(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/deadletters/{id}", func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, r.PathValue("id")) })
	got := callFront(frontOf(t, mux.ServeHTTP, mux.ServeHTTP), "GET", "/v1/deadletters/effect.acme.a%2Fb", "")
	if got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "effect.acme.a/b") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestAHeadOfAListIsAnswered also where a shard's owner answers it without a body.
func TestAHeadOfAListIsAnswered(t *testing.T) {
	list := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			answer(w, http.StatusOK, InstanceList{Instances: []InstanceSummary{}})
		}
	}
	if got := callFront(frontOf(t, list, list), "HEAD", "/v1/instances", ""); got.Code != http.StatusOK {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}
